/* Mock engine: answers like an OpenAI-compatible vLLM server, so quickly that it is never what a benchmark measures.
 *
 * One thread, epoll, HTTP/1.1 keep-alive. Whole answers are one fixed JSON text; streams send one content chunk every
 * --itl-ms, numbered, so that the load client can tell a lost, doubled or reordered one. Its counterpart is load.c.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#include "timers.h"

enum { EVENTS = 512, FIRST_BUFFER_BYTES = 8192, FIELD_WINDOW_BYTES = 4096, STREAM_BACKLOG_BYTES = 1 << 20 };

struct conn {
    struct timer timer;        /* first member: the next event of the stream */
    int fd;
    char *in;
    size_t in_len, in_cap;
    size_t head_len;           /* 0: head not complete */
    size_t content_length;
    size_t chunk_read, chunk_write; /* positions while a chunked request body is decoded in place */
    bool is_chunked, close_after, wants_write;
    char *out;
    size_t out_len, out_off, out_cap;
    bool is_streaming, is_chat, include_usage, is_cut;
    uint32_t chunks_sent, chunks_total;
    uint64_t number;           /* of the request: part of its id */
    char model[80];
};

static struct {
    int port, itl_us, ttft_us, error_every, cut_every, default_chunks;
    bool is_verbose;
} options = {.port = 0, .itl_us = 20000, .default_chunks = 16};

static struct {
    uint64_t requests, streams, chunks, errors, cuts, cancelled, other;
    int64_t running;
} counts;

static int poll_fd, timer_fd;
static struct timer_heap timers;
static uint64_t armed_ns;
static const char ANSWER_TEXT[] =
    "A headrace is the channel that brings water to a mill wheel: the stream is led off above the weir, kept level along "
    "the valley side, and dropped on the wheel where its fall does the most work.";

static uint64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void die(const char *what) {
    fprintf(stderr, "mock_engine: %s: %s\n", what, strerror(errno));
    exit(1);
}

static void *grow(void *buffer, size_t bytes) {
    if (!(buffer = realloc(buffer, bytes))) die("out of memory");
    return buffer;
}

static void timer_arm(void) {
    uint64_t due = timers.len ? timers.by_due[0]->due_ns : 0;
    if (due == armed_ns) return;
    struct itimerspec when = {.it_value = {.tv_sec = (time_t)(due / 1000000000u), .tv_nsec = (long)(due % 1000000000u)}};
    if (timerfd_settime(timer_fd, TFD_TIMER_ABSTIME, &when, NULL) < 0) die("timerfd_settime");
    armed_ns = due;
}

/* ---- writing ---- */

static void conn_close(struct conn *c) {
    if (c->is_streaming) {
        counts.running--;
        if (c->chunks_sent < c->chunks_total && !c->is_cut) counts.cancelled++;
    }
    timer_clear(&timers, &c->timer);
    close(c->fd);
    free(c->in);
    free(c->out);
    free(c);
}

static void watch(struct conn *c, bool wants_write) {
    if (c->wants_write == wants_write) return;
    struct epoll_event e = {.events = EPOLLIN | EPOLLRDHUP | (wants_write ? EPOLLOUT : 0), .data.ptr = c};
    epoll_ctl(poll_fd, EPOLL_CTL_MOD, c->fd, &e);
    c->wants_write = wants_write;
}

/* Returns false when the connection is gone; what the socket does not take now is kept. */
static bool conn_send(struct conn *c, const char *bytes, size_t len) {
    if (c->out_off == c->out_len) {
        ssize_t n = send(c->fd, bytes, len, MSG_NOSIGNAL);
        if (n < 0 && errno != EAGAIN && errno != EINTR) return false;
        if (n > 0) { bytes += n; len -= (size_t)n; }
        if (!len) return true;
        c->out_off = c->out_len = 0;
    }
    if (c->out_len + len > c->out_cap) {
        c->out_cap = (c->out_len + len) * 2;
        c->out = grow(c->out, c->out_cap);
    }
    memcpy(c->out + c->out_len, bytes, len);
    c->out_len += len;
    watch(c, true);
    return true;
}

static bool conn_flush(struct conn *c) {
    while (c->out_off < c->out_len) {
        ssize_t n = send(c->fd, c->out + c->out_off, c->out_len - c->out_off, MSG_NOSIGNAL);
        if (n < 0) return errno == EAGAIN || errno == EINTR;
        c->out_off += (size_t)n;
    }
    watch(c, false);
    return true;
}

static bool answer(struct conn *c, int status, const char *reason, const char *type, const char *body) {
    char text[8192];
    int n = snprintf(text, sizeof text,
                     "HTTP/1.1 %d %s\r\ndate: Mon, 30 Nov 2026 00:00:00 GMT\r\nserver: mock\r\ncontent-length: %zu\r\n"
                     "content-type: %s\r\n\r\n%s", status, reason, strlen(body), type, body);
    return conn_send(c, text, (size_t)n) && !c->close_after;
}

struct text { char bytes[8192]; size_t len; };

/* Appends one SSE event as one HTTP chunk. */
static void add_event(struct text *t, const char *format, ...) {
    char event[1024];
    va_list args;
    va_start(args, format);
    int n = vsnprintf(event, sizeof event, format, args);
    va_end(args);
    t->len += (size_t)snprintf(t->bytes + t->len, sizeof t->bytes - t->len, "%x\r\n%s\r\n", n, event);
}

static void add_delta(struct text *t, struct conn *c, const char *delta, const char *finish) {
    if (c->is_chat)
        add_event(t, "data: {\"id\":\"chatcmpl-%016llx\",\"object\":\"chat.completion.chunk\",\"created\":1796000000,"
                     "\"model\":\"%s\",\"choices\":[{\"index\":0,\"delta\":{%s%s%s},\"logprobs\":null,"
                     "\"finish_reason\":%s}]}\n\n", (unsigned long long)c->number, c->model,
                  *delta == 'r' ? "\"role\":\"assistant\",\"content\":\"" : "\"content\":\"",
                  *delta == 'r' ? "" : delta, "\"", finish);
    else
        add_event(t, "data: {\"id\":\"cmpl-%016llx\",\"object\":\"text_completion\",\"created\":1796000000,"
                     "\"model\":\"%s\",\"choices\":[{\"index\":0,\"text\":\"%s\",\"logprobs\":null,"
                     "\"finish_reason\":%s,\"stop_reason\":null}]}\n\n", (unsigned long long)c->number, c->model, delta,
                  finish);
}

/* Sends the next numbered chunk, and with the last one everything that ends the stream. */
static bool stream_step(struct conn *c, struct text *t, uint64_t at_ns) {
    if (c->is_cut && c->chunks_sent >= c->chunks_total / 2) {
        counts.cuts++;
        return false;
    }
    if (c->out_len - c->out_off > STREAM_BACKLOG_BYTES) { /* a slow reader: an engine would wait as well */
        timer_set(&timers, &c->timer, at_ns + 20000000u);
        return true;
    }
    char delta[16];
    snprintf(delta, sizeof delta, " %05u", c->chunks_sent);
    add_delta(t, c, delta, "null");
    c->chunks_sent++;
    counts.chunks++;
    bool is_last = c->chunks_sent == c->chunks_total;
    if (is_last) {
        add_delta(t, c, "", "\"length\"");
        if (c->include_usage)
            add_event(t, "data: {\"id\":\"%s-%016llx\",\"object\":\"%s\",\"created\":1796000000,\"model\":\"%s\","
                         "\"choices\":[],\"usage\":{\"prompt_tokens\":128,\"total_tokens\":%u,\"completion_tokens\":%u}}\n\n",
                      c->is_chat ? "chatcmpl" : "cmpl", (unsigned long long)c->number,
                      c->is_chat ? "chat.completion.chunk" : "text_completion", c->model, 128 + c->chunks_total,
                      c->chunks_total);
        add_event(t, "data: [DONE]\n\n");
        t->len += (size_t)snprintf(t->bytes + t->len, sizeof t->bytes - t->len, "0\r\n\r\n");
        c->is_streaming = false;
        counts.running--;
    }
    bool is_open = conn_send(c, t->bytes, t->len);
    if (is_last) return is_open && !c->close_after;
    timer_set(&timers, &c->timer, at_ns + (uint64_t)options.itl_us * 1000u);
    return is_open;
}

static bool stream_begin(struct conn *c, uint64_t at_ns) {
    struct text t = {.len = 0};
    t.len = (size_t)snprintf(t.bytes, sizeof t.bytes,
                             "HTTP/1.1 200 OK\r\ndate: Mon, 30 Nov 2026 00:00:00 GMT\r\nserver: mock\r\n"
                             "content-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n");
    if (c->is_chat) add_delta(&t, c, "role", "null");
    return stream_step(c, &t, at_ns);
}

/* ---- requests ---- */

/* The value after "name": in JSON text, or NULL. Fields near either end only: a long prompt is not searched. */
static const char *find_field(const char *body, size_t len, const char *name) {
    size_t window = len < FIELD_WINDOW_BYTES ? len : FIELD_WINDOW_BYTES;
    const char *places[2] = {body, body + len - window};
    for (int i = 0; i < 2; i++) {
        const char *hit = memmem(places[i], window, name, strlen(name));
        if (hit) {
            hit += strlen(name);
            while (hit < body + len && (*hit == ' ' || *hit == ':')) hit++;
            return hit < body + len ? hit : NULL;
        }
        if (len <= FIELD_WINDOW_BYTES) break;
    }
    return NULL;
}

static bool field_is_true(const char *body, size_t len, const char *name) {
    const char *value = find_field(body, len, name);
    return value && *value == 't';
}

static void read_model(struct conn *c, const char *body, size_t len) {
    const char *value = find_field(body, len, "\"model\"");
    size_t n = 0;
    if (value && *value++ == '"')
        for (; value < body + len && *value != '"' && *value != '\\' && n + 1 < sizeof c->model; value++)
            c->model[n++] = *value;
    c->model[n] = 0;
}

static bool answer_whole(struct conn *c) {
    char body[2048];
    if (c->is_chat)
        snprintf(body, sizeof body,
                 "{\"id\":\"chatcmpl-%016llx\",\"object\":\"chat.completion\",\"created\":1796000000,\"model\":\"%s\","
                 "\"choices\":[{\"index\":0,\"message\":{\"role\":\"assistant\",\"content\":\"%s\",\"refusal\":null,"
                 "\"annotations\":null,\"audio\":null,\"function_call\":null,\"tool_calls\":[],\"reasoning\":null},"
                 "\"logprobs\":null,\"finish_reason\":\"stop\",\"stop_reason\":null,\"token_ids\":null}],"
                 "\"service_tier\":null,\"system_fingerprint\":null,\"usage\":{\"prompt_tokens\":128,"
                 "\"total_tokens\":168,\"completion_tokens\":40,\"prompt_tokens_details\":null},"
                 "\"prompt_logprobs\":null}", (unsigned long long)c->number, c->model, ANSWER_TEXT);
    else
        snprintf(body, sizeof body,
                 "{\"id\":\"cmpl-%016llx\",\"object\":\"text_completion\",\"created\":1796000000,\"model\":\"%s\","
                 "\"choices\":[{\"index\":0,\"text\":\"%s\",\"logprobs\":null,\"finish_reason\":\"length\","
                 "\"stop_reason\":null}],\"usage\":{\"prompt_tokens\":128,\"total_tokens\":168,"
                 "\"completion_tokens\":40}}", (unsigned long long)c->number, c->model, ANSWER_TEXT);
    return answer(c, 200, "OK", "application/json", body);
}

static bool is_nth(int every) { return every && counts.requests % (uint64_t)every == 0; }
static bool serve_inference(struct conn *c, const char *body, size_t len) {
    c->number = ++counts.requests;
    if (is_nth(options.error_every)) {
        counts.errors++;
        return answer(c, 500, "Internal Server Error", "application/json",
                      "{\"error\":{\"message\":\"mock failure\",\"type\":\"InternalServerError\",\"code\":500}}");
    }
    read_model(c, body, len);
    c->is_cut = is_nth(options.cut_every);
    if (!field_is_true(body, len, "\"stream\"")) {
        if (c->is_cut) counts.cuts++;
        return !c->is_cut && answer_whole(c);
    }
    const char *limit = find_field(body, len, "\"max_tokens\"");
    if (!limit) limit = find_field(body, len, "\"max_completion_tokens\"");
    c->chunks_total = limit ? (uint32_t)strtoul(limit, NULL, 10) : (uint32_t)options.default_chunks;
    if (!c->chunks_total) c->chunks_total = 1;
    c->chunks_sent = 0;
    c->include_usage = field_is_true(body, len, "\"include_usage\"");
    c->is_streaming = true;
    counts.streams++;
    counts.running++;
    if (!options.ttft_us) return stream_begin(c, now_ns());
    timer_set(&timers, &c->timer, now_ns() + (uint64_t)options.ttft_us * 1000u);
    return true;
}

static bool serve_metrics(struct conn *c) {
    char body[4096];
    snprintf(body, sizeof body,
             "# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running{engine=\"0\",model_name=\"mock\"} %lld\n"
             "# TYPE vllm:num_requests_waiting gauge\nvllm:num_requests_waiting{engine=\"0\",model_name=\"mock\"} 0\n"
             "# TYPE vllm:kv_cache_usage_perc gauge\nvllm:kv_cache_usage_perc{engine=\"0\",model_name=\"mock\"} 0.1\n"
             "# TYPE mock_requests counter\nmock_requests_total %llu\n# TYPE mock_streams counter\nmock_streams_total %llu\n"
             "# TYPE mock_chunks counter\nmock_chunks_total %llu\n# TYPE mock_errors counter\nmock_errors_total %llu\n"
             "# TYPE mock_cuts counter\nmock_cuts_total %llu\n# TYPE mock_cancelled counter\nmock_cancelled_total %llu\n"
             "# TYPE mock_other_requests counter\nmock_other_requests_total %llu\n",
             (long long)counts.running, (unsigned long long)counts.requests, (unsigned long long)counts.streams,
             (unsigned long long)counts.chunks, (unsigned long long)counts.errors, (unsigned long long)counts.cuts,
             (unsigned long long)counts.cancelled, (unsigned long long)counts.other);
    return answer(c, 200, "OK", "text/plain; version=0.0.4; charset=utf-8", body);
}

static bool serve(struct conn *c, const char *body, size_t len) {
    char *path = memchr(c->in, ' ', c->head_len);
    char *end = path ? memchr(path + 1, ' ', c->head_len - (size_t)(path + 1 - c->in)) : NULL;
    if (!end) return false;
    path++;
    char *query = memchr(path, '?', (size_t)(end - path));
    if (query) end = query;
    size_t n = (size_t)(end - path);
#define IS(text) (n == sizeof(text) - 1 && !memcmp(path, text, n))
    c->is_chat = IS("/v1/chat/completions");
    if (c->is_chat || IS("/v1/completions")) return serve_inference(c, body, len);
    counts.other++;
    if (options.is_verbose) fprintf(stderr, "%.*s\n", (int)(strcspn(c->in, "\r")), c->in);
    if (IS("/health") || IS("/health_generate") || IS("/ping")) return answer(c, 200, "OK", "application/json", "");
    if (IS("/metrics")) return serve_metrics(c);
    if (IS("/version")) return answer(c, 200, "OK", "application/json", "{\"version\":\"0.33.0\"}");
    if (IS("/v1/models"))
        return answer(c, 200, "OK", "application/json",
                      "{\"object\":\"list\",\"data\":[{\"id\":\"mock\",\"object\":\"model\",\"created\":1796000000,"
                      "\"owned_by\":\"vllm\",\"root\":\"mock\",\"parent\":null,\"max_model_len\":131072}]}");
    if (IS("/model_info") || IS("/server_info"))
        return answer(c, 200, "OK", "application/json", "{\"model_path\":\"mock\",\"is_generation\":true}");
#undef IS
    return answer(c, 404, "Not Found", "application/json", "{\"detail\":\"Not Found\"}");
}

/* ---- reading ---- */

static bool read_head(struct conn *c) {
    char *end = memmem(c->in, c->in_len, "\r\n\r\n", 4);
    if (!end) return c->in_len < 1 << 20;
    c->head_len = (size_t)(end - c->in) + 4;
    c->content_length = 0;
    c->is_chunked = c->close_after = false;
    for (char *line = memchr(c->in, '\n', c->head_len); line && line < end; line = memchr(line, '\n', (size_t)(end + 2 - line))) {
        line++;
        if (!strncasecmp(line, "content-length:", 15)) c->content_length = strtoull(line + 15, NULL, 10);
        else if (!strncasecmp(line, "transfer-encoding:", 18)) c->is_chunked = true;
        else if (!strncasecmp(line, "connection: close", 17)) c->close_after = true;
        else if (!strncasecmp(line, "expect: 100", 11) && !conn_send(c, "HTTP/1.1 100 Continue\r\n\r\n", 25)) return false;
    }
    c->chunk_read = c->chunk_write = c->head_len;
    return true;
}

/* Decodes what there is of a chunked request body, in place. 1: complete, 0: more needed, -1: broken. */
static int read_chunks(struct conn *c) {
    for (;;) {
        char *start = c->in + c->chunk_read;
        char *line_end = memmem(start, c->in_len - c->chunk_read, "\r\n", 2);
        if (!line_end) return 0;
        char *digits_end;
        size_t size = strtoull(start, &digits_end, 16);
        if (digits_end == start) return -1;
        size_t payload = (size_t)(line_end - c->in) + 2;
        if (payload + size + 2 > c->in_len) return 0;
        memmove(c->in + c->chunk_write, c->in + payload, size);
        c->chunk_write += size;
        c->chunk_read = payload + size + 2;
        if (!size) return 1;
    }
}

/* Serves every complete request that has been read. Returns false when the connection must be closed. */
static bool serve_buffered(struct conn *c) {
    while (c->in_len && !c->is_streaming) {
        if (!c->head_len && !read_head(c)) return false;
        if (!c->head_len) return true;
        size_t used, body_len = c->content_length;
        if (c->is_chunked) {
            int state = read_chunks(c);
            if (state <= 0) return state == 0;
            body_len = c->chunk_write - c->head_len;
            used = c->chunk_read;
        } else {
            used = c->head_len + c->content_length;
            if (c->in_len < used) return true;
        }
        bool is_open = serve(c, c->in + c->head_len, body_len);
        c->in_len -= used;
        memmove(c->in, c->in + used, c->in_len);
        c->head_len = 0;
        if (!is_open) return false;
    }
    return true;
}

static bool conn_read(struct conn *c) {
    for (;;) {
        size_t wanted = c->head_len ? c->head_len + c->content_length + 1 : c->in_len + 1;
        if (wanted < c->in_len + 4096) wanted = c->in_len + 4096;
        if (wanted > c->in_cap) {
            c->in_cap = wanted < FIRST_BUFFER_BYTES ? FIRST_BUFFER_BYTES : wanted + wanted / 2;
            c->in = grow(c->in, c->in_cap);
        }
        size_t room = c->in_cap - c->in_len;
        ssize_t n = recv(c->fd, c->in + c->in_len, room, 0);
        if (n < 0) return errno == EAGAIN || errno == EINTR;
        if (n == 0) return false;
        c->in_len += (size_t)n;
        if (!serve_buffered(c)) return false;
        if ((size_t)n < room) return true;
    }
}

static void accept_all(int listener) {
    for (;;) {
        int fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd < 0) return;
        int one = 1;
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        struct conn *c = calloc(1, sizeof *c);
        if (!c) die("out of memory");
        c->fd = fd;
        c->timer.at = -1;
        struct epoll_event e = {.events = EPOLLIN | EPOLLRDHUP, .data.ptr = c};
        if (epoll_ctl(poll_fd, EPOLL_CTL_ADD, fd, &e) < 0) die("epoll_ctl");
    }
}

static void run_due(void) {
    uint64_t ticks, at = now_ns();
    if (read(timer_fd, &ticks, sizeof ticks) < 0 && errno != EAGAIN) die("timerfd");
    armed_ns = 0;
    while (timers.len && timers.by_due[0]->due_ns <= at) {
        struct conn *c = (struct conn *)timers.by_due[0];
        uint64_t due = c->timer.due_ns; /* the next chunk counts from here: no drift */
        timer_clear(&timers, &c->timer);
        struct text t = {.len = 0};
        bool is_open = c->chunks_sent ? stream_step(c, &t, due) : stream_begin(c, due);
        if (is_open && !c->is_streaming) is_open = serve_buffered(c);
        if (!is_open) conn_close(c);
    }
}

static int listen_on(int port) {
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), one = 1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    if (fd < 0 || bind(fd, (struct sockaddr *)&at, sizeof at) < 0 || listen(fd, 4096) < 0) die("listen");
    socklen_t len = sizeof at;
    getsockname(fd, (struct sockaddr *)&at, &len);
    printf("ready %d\n", ntohs(at.sin_port));
    fflush(stdout);
    return fd;
}

static void read_options(int argc, char **argv) {
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--verbose")) { options.is_verbose = true; continue; }
        if (i + 1 >= argc) { fprintf(stderr, "mock_engine: %s needs a value\n", argv[i]); exit(2); }
        char *name = argv[i++], *value = argv[i];
        if (!strcmp(name, "--port")) options.port = atoi(value);
        else if (!strcmp(name, "--itl-ms")) options.itl_us = (int)(atof(value) * 1000);
        else if (!strcmp(name, "--ttft-ms")) options.ttft_us = (int)(atof(value) * 1000);
        else if (!strcmp(name, "--chunks")) options.default_chunks = atoi(value);
        else if (!strcmp(name, "--error-every")) options.error_every = atoi(value);
        else if (!strcmp(name, "--cut-every")) options.cut_every = atoi(value);
        else { fprintf(stderr, "mock_engine: unknown option %s\n", name); exit(2); }
    }
}

int main(int argc, char **argv) {
    read_options(argc, argv);
    signal(SIGPIPE, SIG_IGN);
    poll_fd = epoll_create1(EPOLL_CLOEXEC);
    timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    int listener = listen_on(options.port);
    static char timer_mark, listener_mark;
    struct epoll_event e = {.events = EPOLLIN, .data.ptr = &listener_mark};
    epoll_ctl(poll_fd, EPOLL_CTL_ADD, listener, &e);
    e.data.ptr = &timer_mark;
    epoll_ctl(poll_fd, EPOLL_CTL_ADD, timer_fd, &e);
    struct epoll_event ready[EVENTS];
    for (;;) {
        timer_arm();
        int n = epoll_wait(poll_fd, ready, EVENTS, -1);
        bool is_due = false;
        for (int i = 0; i < n; i++) {
            if (ready[i].data.ptr == &listener_mark) { accept_all(listener); continue; }
            if (ready[i].data.ptr == &timer_mark) { is_due = true; continue; }
            struct conn *c = ready[i].data.ptr;
            bool is_open = true;
            if (ready[i].events & (EPOLLERR | EPOLLHUP)) is_open = false;
            if (is_open && ready[i].events & EPOLLOUT) is_open = conn_flush(c);
            if (is_open && ready[i].events & (EPOLLIN | EPOLLRDHUP)) is_open = conn_read(c);
            if (!is_open) conn_close(c);
        }
        if (is_due) run_due(); /* last: it may close connections that this batch still names */
    }
}
