#!/bin/sh
# Made by `headrace render docker`: change the declaration and render again.
# Run it again to replace what runs, one container after the other: each drains first, its successor must be
# healthy before the next one is touched, and the first that is not is taken back. Engines have no
# authentication: only the gateway's port is published, and they share a network with the gateway alone.
set -eu

# Files that containers read are written below this folder.
files="${HEADRACE_FILES:-/etc/llm}"

replacing=
fresh=

is_there() { docker container inspect "$1" >/dev/null 2>&1; }

# Fetches an image before anything is stopped; one that no registry answers for must be on this machine.
pull() {
  docker pull --quiet "$1" >/dev/null 2>&1 || docker image inspect "$1" >/dev/null 2>&1 || {
    echo "image $1 can neither be pulled nor found here: nothing was replaced" >&2
    exit 1
  }
}

# Ends a container if it is there: SIGTERM, its drain bound in seconds, then SIGKILL. It is kept, stopped, as
# NAME-before until its successor is healthy. One that an earlier run left unproven is not kept.
set_aside() {
  replacing=$1
  is_there "$1" || return 0
  docker stop -t "$2" "$1" >/dev/null
  if is_there "$1-before"; then
    docker rm "$1" >/dev/null
  else
    docker rename "$1" "$1-before"
  fi
}

# Where there was one before, waits for the fresh container before the next one is touched, and some seconds more, in
# which the gateway learns of it. Those without a predecessor load side by side: they are waited for at the end.
started() {
  if is_there "$1-before"; then
    await_healthy "$1" "$2"
    docker rm "$1-before" >/dev/null
    sleep "$3"
  else
    fresh="$fresh $1 $2"
  fi
  replacing=
}

# Waits until a container is healthy, NAME SECONDS; ends the script where it is not in time, or dies again and again.
await_healthy() {
  left=$2
  while :; do
    state=$(docker container inspect --format '{{.State.Health.Status}} {{.RestartCount}}' "$1")
    case "$state" in
      "healthy "*) return 0 ;;
      "starting "[0-2]) ;;
      *) break ;;
    esac
    [ "$left" -gt 0 ] || break
    sleep 2
    left=$((left - 2))
  done
  echo "$1 does not become healthy (health, restarts: $state); what it said last:" >&2
  docker logs --tail 20 "$1" >&2 || true
  exit 1
}

# At the end, however it comes: what was set aside and has no healthy successor runs again.
go_back() {
  status=$?
  trap - EXIT
  if [ -n "$replacing" ]; then
    if is_there "$replacing-before"; then
      if is_there "$replacing"; then docker rm --force "$replacing" >/dev/null; fi
      docker rename "$replacing-before" "$replacing"
      echo "$replacing goes back to what it was; what comes after it was not touched" >&2
    fi
    if is_there "$replacing"; then docker start "$replacing" >/dev/null; fi
  fi
  exit "$status"
}
trap go_back EXIT
trap 'exit 130' INT TERM

pull docker.io/vllm/vllm-openai:v0.32.0
pull headrace:0.1.0
docker network inspect llm >/dev/null 2>&1 || docker network create llm >/dev/null

# Weights of qwen2.5-32b (models.qwen2.5-32b.source): fetched once, resumed, checked.
mkdir -p /srv/models
docker run --rm \
  --name llm-fetch \
  --user "$(id -u):$(id -g)" \
  --volume /srv/models:/models \
  --env HEADRACE_CACHE_DIR=/models \
  --env HF_TOKEN --env HF_ENDPOINT --env PIP_INDEX_URL --env HTTPS_PROXY --env NO_PROXY \
  --entrypoint python \
  headrace:0.1.0 -m headrace.fleet.deploy.models --source hf:Qwen/Qwen2.5-32B-Instruct@5ede1c97bbab6ce5cda5812749b4c0bdf79b18dd

# Replica 0 of pool main: qwen2.5-32b on vllm
# image: https://docs.vllm.ai/en/stable/deployment/docker/: vllm/vllm-openai:vVERSION
# user: 2000:0 (vllm-project/vllm#40275: since then the image has a user vllm (2000, group 0) with a home of its own)
# drain: 120 s (pools.main.stop_s)
# loading: about 156 s, at most 600 s (load_timeout_s)
# batching.max_queued 1024 is --max-num-queued-reqs 2048: vLLM counts running requests too
set_aside llm-main-0 120
docker run --detach --init \
  --name llm-main-0 \
  --network llm --network-alias main-0 \
  --restart unless-stopped \
  --stop-timeout 120 \
  --log-opt max-size=50m --log-opt max-file=5 \
  --gpus '"device=0,1,2,3"' \
  --ulimit memlock=-1 --ulimit stack=67108864 \
  --shm-size 17179869184 \
  --user 2000:0 \
  --security-opt no-new-privileges \
  --cap-drop ALL \
  --volume /srv/models:/models:ro \
  --env DO_NOT_TRACK=1 \
  --env HF_HUB_OFFLINE=1 \
  --env VLLM_ENGINE_READY_TIMEOUT_S=600 \
  --env VLLM_NO_USAGE_STATS=1 \
  --health-cmd 'python3 -c '"'"'import http.client as h; c = h.HTTPConnection("127.0.0.1", 30000, timeout=5); c.request("GET", "/health"); raise SystemExit(c.getresponse().status >= 400)'"'"'' \
  --health-interval 10s --health-timeout 6s \
  --health-start-period 600s --health-retries 3 \
  --entrypoint vllm \
  docker.io/vllm/vllm-openai:v0.32.0 \
  serve /models/snapshots/Qwen--Qwen2.5-32B-Instruct/5ede1c97bbab6ce5cda5812749b4c0bdf79b18dd \
  --served-model-name qwen2.5-32b \
  --host 0.0.0.0 \
  --port 30000 \
  --max-model-len 32768 \
  --tensor-parallel-size 4 \
  --gpu-memory-utilization 0.85 \
  --max-num-queued-reqs 2048 \
  --shutdown-timeout 118 \
  --enable-prompt-tokens-details \
  --disable-uvicorn-access-log
started llm-main-0 645 5

# The gateway.
# drain: 30 s (gateway.drain_s), and 10 s to end
# image: built from the project's Dockerfile
mkdir -p "$files"/gateway/966dbf9aba82
cat > "$files"/gateway/966dbf9aba82/headrace.yaml <<'HEADRACE_END'
# The gateway's declaration, made by `headrace render`: the engines of its pools run elsewhere.
version: 1
gateway:
  listen: "0.0.0.0:7070"
  control: "127.0.0.1:7071"
models:
  qwen2.5-32b:
    context_tokens: 32768
pools:
  main:
    model: qwen2.5-32b
    engine: vllm
    endpoints:
      - http://main-0:30000
HEADRACE_END
set_aside llm-gateway 40
docker run --detach --init \
  --name llm-gateway \
  --network llm --network-alias gateway \
  --restart unless-stopped \
  --stop-timeout 40 \
  --log-opt max-size=50m --log-opt max-file=5 \
  --user 65532:65532 \
  --security-opt no-new-privileges \
  --cap-drop ALL \
  --read-only --tmpfs /tmp \
  --publish 127.0.0.1:7070:7070 \
  --volume llm-state:/var/lib/headrace \
  --volume "$files"/gateway/966dbf9aba82/headrace.yaml:/etc/headrace/headrace.yaml:ro \
  --env HEADRACE_STATE_DIR=/var/lib/headrace \
  --env HEADRACE_CONFIG=/etc/headrace/headrace.yaml \
  --health-cmd 'python -c '"'"'import http.client as h; c = h.HTTPConnection("127.0.0.1", 7070, timeout=5); c.request("GET", "/health"); raise SystemExit(c.getresponse().status >= 400)'"'"'' \
  --health-interval 10s --health-timeout 6s \
  --health-start-period 60s --health-retries 3 \
  --entrypoint headrace \
  headrace:0.1.0 up
started llm-gateway 105 0

# Those that had no predecessor.
set -- $fresh
while [ $# -gt 0 ]; do
  await_healthy "$1" "$2"
  shift 2
done
