#!/bin/sh
# Made by `headrace render docker`: change the declaration and render again.
# Run it again to replace what runs: each container drains first. Engines have no authentication: only the
# gateway's port is published, and they share a network with the gateway alone.
set -eu

# Files that containers read are written below this folder.
files="${HEADRACE_FILES:-/etc/headrace}"
: "${HUB_TOKEN:?is a secret that the declaration names: set it}"

# Ends a container if it is there: SIGTERM, its drain bound in seconds, then SIGKILL.
replace() {
  if docker container inspect "$1" >/dev/null 2>&1; then
    docker stop -t "$2" "$1" >/dev/null
    docker rm "$1" >/dev/null
  fi
}

docker network inspect headrace >/dev/null 2>&1 || docker network create headrace >/dev/null

# Weights of chat-8b (models.chat-8b.source): fetched once, resumed, checked.
mkdir -p /var/lib/headrace/models
docker run --rm \
  --name headrace-fetch \
  --user "$(id -u):$(id -g)" \
  --volume /var/lib/headrace/models:/models \
  --env HEADRACE_CACHE_DIR=/models \
  --env HF_TOKEN --env HF_ENDPOINT \
  --entrypoint python \
  headrace:0.1.0 -m headrace.fleet.deploy.models --source hf:acme/chat-8b@0123456789abcdef0123456789abcdef01234567

# Replica 0 of pool chat: chat-8b on sglang
# image: https://hub.docker.com/r/lmsysorg/sglang/tags: lmsysorg/sglang:vVERSION; docker/compose.yaml of its tree
# user: root (its files and caches belong to root (the project's Dockerfile sets no other user))
# drain: 60 s (pools.chat.stop_s)
# loading: about 106 s, at most 600 s (load_timeout_s)
replace headrace-chat-0 60
HF_TOKEN="$HUB_TOKEN" \
  docker run --detach --init \
  --name headrace-chat-0 \
  --network headrace --network-alias chat-0 \
  --restart unless-stopped \
  --stop-timeout 60 \
  --log-opt max-size=50m --log-opt max-file=5 \
  --gpus '"device=0"' \
  --ulimit memlock=-1 --ulimit stack=67108864 \
  --shm-size 1073741824 \
  --security-opt no-new-privileges \
  --volume /var/lib/headrace/models:/models:ro \
  --env HF_HUB_OFFLINE=1 \
  --env HF_TOKEN \
  --health-cmd 'python3 -c '"'"'import http.client as h; c = h.HTTPConnection("127.0.0.1", 30000, timeout=5); c.request("GET", "/ready"); raise SystemExit(c.getresponse().status >= 400)'"'"'' \
  --health-interval 10s --health-timeout 6s \
  --health-start-period 600s --health-retries 3 \
  --entrypoint python3 \
  docker.io/lmsysorg/sglang:v0.5.23 -m sglang.launch_server \
  --model-path /models/snapshots/acme--chat-8b/0123456789abcdef0123456789abcdef01234567 \
  --served-model-name chat-8b \
  --host 0.0.0.0 \
  --port 30000 \
  --context-length 8192 \
  --max-queued-requests 1024 \
  --enable-metrics \
  --enable-cache-report \
  --log-level-http warning

# Replica 1 of pool chat: chat-8b on sglang
# image: https://hub.docker.com/r/lmsysorg/sglang/tags: lmsysorg/sglang:vVERSION; docker/compose.yaml of its tree
# user: root (its files and caches belong to root (the project's Dockerfile sets no other user))
# drain: 60 s (pools.chat.stop_s)
# loading: about 106 s, at most 600 s (load_timeout_s)
replace headrace-chat-1 60
HF_TOKEN="$HUB_TOKEN" \
  docker run --detach --init \
  --name headrace-chat-1 \
  --network headrace --network-alias chat-1 \
  --restart unless-stopped \
  --stop-timeout 60 \
  --log-opt max-size=50m --log-opt max-file=5 \
  --gpus '"device=1"' \
  --ulimit memlock=-1 --ulimit stack=67108864 \
  --shm-size 1073741824 \
  --security-opt no-new-privileges \
  --volume /var/lib/headrace/models:/models:ro \
  --env HF_HUB_OFFLINE=1 \
  --env HF_TOKEN \
  --health-cmd 'python3 -c '"'"'import http.client as h; c = h.HTTPConnection("127.0.0.1", 30000, timeout=5); c.request("GET", "/ready"); raise SystemExit(c.getresponse().status >= 400)'"'"'' \
  --health-interval 10s --health-timeout 6s \
  --health-start-period 600s --health-retries 3 \
  --entrypoint python3 \
  docker.io/lmsysorg/sglang:v0.5.23 -m sglang.launch_server \
  --model-path /models/snapshots/acme--chat-8b/0123456789abcdef0123456789abcdef01234567 \
  --served-model-name chat-8b \
  --host 0.0.0.0 \
  --port 30000 \
  --context-length 8192 \
  --max-queued-requests 1024 \
  --enable-metrics \
  --enable-cache-report \
  --log-level-http warning

# The gateway.
# drain: 30 s (gateway.drain_s), and 10 s to end
# image: built from the project's Dockerfile
mkdir -p "$files"/.
cat > "$files"/headrace.yaml <<'HEADRACE_END'
# The gateway's declaration, made by `headrace render`: the engines of its pools run elsewhere.
version: 1
gateway:
  listen: "0.0.0.0:7070"
  control: "127.0.0.1:7071"
models:
  chat-8b:
    context_tokens: 8192
pools:
  chat:
    model: chat-8b
    engine: sglang
    endpoints:
      - http://chat-0:30000
      - http://chat-1:30000
HEADRACE_END
replace headrace-gateway 40
docker run --detach --init \
  --name headrace-gateway \
  --network headrace --network-alias gateway \
  --restart unless-stopped \
  --stop-timeout 40 \
  --log-opt max-size=50m --log-opt max-file=5 \
  --user 65532:65532 \
  --security-opt no-new-privileges \
  --cap-drop ALL \
  --read-only --tmpfs /tmp \
  --publish 127.0.0.1:7070:7070 \
  --volume headrace-state:/var/lib/headrace \
  --volume "$files"/headrace.yaml:/etc/headrace/headrace.yaml:ro \
  --env HEADRACE_STATE_DIR=/var/lib/headrace \
  --env HEADRACE_CONFIG=/etc/headrace/headrace.yaml \
  --health-cmd 'python -c '"'"'import http.client as h; c = h.HTTPConnection("127.0.0.1", 7070, timeout=5); c.request("GET", "/health"); raise SystemExit(c.getresponse().status >= 400)'"'"'' \
  --health-interval 10s --health-timeout 6s \
  --health-start-period 60s --health-retries 3 \
  --entrypoint headrace \
  headrace:0.1.0 up
