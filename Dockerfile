# The image of headrace itself: gateway, supervisor, command line and the embedded engine. Engines on GPUs run in their
# own images.
#
#   docker build --tag headrace:0.1.0 .
#   docker run --rm headrace:0.1.0 version
#
# `headrace render docker`, `compose` and `kubernetes` write how it is run: which ports, what it may write, which secrets.
ARG PYTHON_IMAGE=docker.io/library/python:3.12.12-slim-bookworm

# Everything that builds stays in this stage. What is installed is pinned with hashes; the installer by its version.
FROM ${PYTHON_IMAGE} AS build
WORKDIR /src
# The compiler of the hot path (docs/decisions/0008).
RUN apt-get update \
    && apt-get install --yes --no-install-recommends gcc libc6-dev \
    && rm -rf /var/lib/apt/lists/*
COPY requirements/bootstrap.txt requirements/build.txt requirements/image.txt requirements/
RUN python -m venv /build \
    && /build/bin/python -m pip install --no-cache-dir --disable-pip-version-check -r requirements/bootstrap.txt \
    && /build/bin/python -m uv pip install --no-cache --python /build/bin/python --require-hashes \
        -r requirements/build.txt
RUN python -m venv --without-pip /venv \
    && /build/bin/python -m uv pip install --no-cache --compile-bytecode --python /venv/bin/python --require-hashes \
        -r requirements/image.txt
COPY pyproject.toml README.md LICENSE ./
COPY tools/compile_hook.py tools/
COPY src src
RUN HEADRACE_COMPILE=1 HEADRACE_COMPILE_PYTHON=/venv/bin/python /build/bin/python -m hatchling build --target wheel --directory /dist \
    && /build/bin/python -m uv pip install --no-cache --compile-bytecode --python /venv/bin/python --no-deps /dist/*.whl

FROM ${PYTHON_IMAGE}
LABEL org.opencontainers.image.title="headrace" \
      org.opencontainers.image.description="Declare, run, govern, explain and rehearse LLM inference in production." \
      org.opencontainers.image.licenses="Apache-2.0"
# The user of deployment.user. Its home is the state folder, the only place that the gateway writes to.
RUN groupadd --gid 65532 headrace \
    && useradd --uid 65532 --gid 65532 --home-dir /var/lib/headrace --no-create-home --shell /usr/sbin/nologin headrace \
    && install --directory --owner 65532 --group 65532 --mode 0700 /var/lib/headrace
COPY --from=build /venv /venv
ENV PATH=/venv/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    HEADRACE_STATE_DIR=/var/lib/headrace \
    HEADRACE_CACHE_DIR=/var/lib/headrace/cache
WORKDIR /var/lib/headrace
USER 65532:65532
# gateway.listen of the declaration that is mounted must be 0.0.0.0:7070 for this port to be of use.
EXPOSE 7070
STOPSIGNAL SIGTERM
# Alive, not ready: a gateway whose engines still load must not be restarted. 7070 is the default of gateway.listen.
HEALTHCHECK --interval=10s --timeout=6s --start-period=60s --retries=3 \
    CMD ["python", "-c", "import http.client as h; c = h.HTTPConnection('127.0.0.1', 7070, timeout=5); c.request('GET', '/health'); raise SystemExit(c.getresponse().status >= 400)"]
ENTRYPOINT ["headrace"]
CMD ["up"]
