/* Load client: closed loops of whole requests or streams, and a mix with cancels and bad requests; prints JSON.
 *
 * One thread, epoll. Streams from mock_engine.c carry numbered chunks: a stream counts as complete only with every
 * chunk, in order, and [DONE]. Each request has one kind and ends in exactly one result.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "histogram.h"
#include "timers.h"
#include "wire.h"

enum kind { PLAIN, STREAM, CANCEL, CANCEL_EARLY, UNAUTHENTICATED, UNKNOWN_MODEL, MALFORMED, KINDS };

static const char *const KIND_NAMES[KINDS] = {
    "plain", "stream", "cancel", "cancel_early", "unauthenticated", "unknown_model", "malformed"};
static const int EXPECTED_STATUS[KINDS] = {200, 200, 200, 0, 401, 404, 400};
static const int MIX_PER_CENT[KINDS] = {60, 20, 8, 2, 4, 3, 3};

enum { EVENTS = 512, READ_BYTES = 262144, STATUSES = 600 };

struct request { char *bytes; size_t len; };

struct caller {
    struct timer timer; /* first member: when it starts, or starts again after a failed connect */
    int fd;
    bool is_connected, is_reused, wants_write;
    enum kind kind;
    struct request *request;
    size_t sent;
    uint64_t begun_ns, last_chunk_ns;
    uint32_t chunks, cancel_after;
    bool is_busy, is_done, is_disordered, has_error_event, is_cancelled;
    struct response response;
};

static struct {
    int port, connections, chunks, progress_every;
    uint64_t requests, prompt_bytes;
    double duration_s, spread_s, stuck_s;
    bool is_stream, is_mix, include_usage;
    const char *key, *model, *path;
} options = {.connections = 1, .chunks = 16, .requests = 1000, .prompt_bytes = 450, .stuck_s = 30, .model = "mock",
             .path = "/v1/chat/completions", .key = "none"};

static struct {
    uint64_t sent, ok, failed, chunks, connects, stale, error_events;
    struct { uint64_t sent, ok, failed, broken, incomplete, statuses[STATUSES]; } kinds[KINDS];
    char first_failure[600];
} seen;

static struct histogram latency, ttft, gap;
static struct request requests[KINDS];
static struct timer_heap timers;
static struct caller *callers;
static int poll_fd;
static uint64_t started_ns, progress_ns, random_state = 0x9E3779B97F4A7C15u;

static uint64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static uint32_t random_below(uint32_t bound) { /* xorshift: the same mix every run */
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return (uint32_t)(random_state >> 33) % bound;
}

static void die(const char *what) {
    fprintf(stderr, "load: %s: %s\n", what, strerror(errno));
    exit(1);
}

/* ---- requests ---- */

static char *make_prompt(void) {
    static const char WORDS[] = "the mill stands where the stream falls and the wheel turns as long as the water comes; ";
    char *prompt = malloc(options.prompt_bytes + 1);
    if (!prompt) die("out of memory");
    for (uint64_t i = 0; i < options.prompt_bytes; i++) prompt[i] = WORDS[i % (sizeof WORDS - 1)];
    prompt[options.prompt_bytes] = 0;
    return prompt;
}

static void make_request(enum kind kind, const char *prompt, bool is_stream) {
    size_t cap = options.prompt_bytes + 4096;
    char *body = malloc(cap), *bytes = malloc(cap + 1024);
    if (!body || !bytes) die("out of memory");
    size_t n = (size_t)snprintf(body, cap,
                                "{\"model\":\"%s\",\"messages\":[{\"role\":\"user\",\"content\":\"%s\"}],\"max_tokens\":%d,"
                                "\"temperature\":0.7%s%s}",
                                kind == UNKNOWN_MODEL ? "no-such-model" : options.model, prompt, options.chunks,
                                is_stream ? ",\"stream\":true" : "",
                                is_stream && options.include_usage ? ",\"stream_options\":{\"include_usage\":true}" : "");
    if (kind == MALFORMED) n -= 10; /* cut inside the object */
    int head = snprintf(bytes, 1024,
                        "POST %s HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nUser-Agent: headrace-load\r\nAccept: */*\r\n"
                        "Authorization: Bearer %s\r\nContent-Type: application/json\r\nContent-Length: %zu\r\n\r\n",
                        options.path, options.port, kind == UNAUTHENTICATED ? "hr-wrong-key" : options.key, n);
    memcpy(bytes + head, body, n);
    free(body);
    requests[kind] = (struct request){.bytes = bytes, .len = (size_t)head + n};
}

static enum kind choose_kind(void) {
    if (!options.is_mix) return options.is_stream ? STREAM : PLAIN;
    int roll = (int)random_below(100), kind = 0;
    while (roll >= MIX_PER_CENT[kind]) roll -= MIX_PER_CENT[kind++];
    return (enum kind)kind;
}

/* ---- one caller ---- */

static void caller_next(struct caller *c);

static void watch(struct caller *c, bool wants_write) {
    if (c->wants_write == wants_write) return;
    struct epoll_event e = {.events = EPOLLIN | EPOLLRDHUP | (wants_write ? EPOLLOUT : 0), .data.ptr = c};
    epoll_ctl(poll_fd, EPOLL_CTL_MOD, c->fd, &e);
    c->wants_write = wants_write;
}

static void disconnect(struct caller *c) {
    if (c->fd >= 0) close(c->fd);
    c->fd = -1;
    c->is_connected = c->is_reused = false;
}

static void note_failure(struct caller *c, const char *format, ...) {
    if (seen.first_failure[0]) return;
    int n = snprintf(seen.first_failure, sizeof seen.first_failure, "%s: ", KIND_NAMES[c->kind]);
    va_list args;
    va_start(args, format);
    vsnprintf(seen.first_failure + n, sizeof seen.first_failure - (size_t)n, format, args);
    va_end(args);
    for (char *p = seen.first_failure; *p; p++)
        if (*p == '"' || *p == '\\' || (unsigned char)*p < 32) *p = '\'';
}

static void finish(struct caller *c, bool is_ok) {
    c->is_busy = false;
    seen.kinds[c->kind].ok += is_ok;
    seen.kinds[c->kind].failed += !is_ok;
    seen.ok += is_ok;
    seen.failed += !is_ok;
    progress_ns = now_ns();
    uint64_t ended = seen.ok + seen.failed;
    if (options.progress_every && ended % (uint64_t)options.progress_every == 0) {
        fprintf(stderr, "progress %llu\n", (unsigned long long)ended);
        fflush(stderr);
    }
}

/* The connection ended before the answer did. */
static void broke(struct caller *c, const char *why) {
    bool is_stale = c->is_reused && c->response.state == IN_HEAD && !c->response.head_len;
    disconnect(c);
    if (is_stale) { /* the server closed the idle connection just as this request was sent: send it again */
        seen.stale++;
        seen.sent--;
        seen.kinds[c->kind].sent--;
    } else {
        note_failure(c, "%s after status %d, %u of %d chunks", why, c->response.status, c->chunks, options.chunks);
        seen.kinds[c->kind].broken++;
        finish(c, false);
    }
    c->is_busy = false;
    timer_set(&timers, &c->timer, now_ns() + (is_stale ? 0 : 2000000u));
}

static void take_event(void *context, const char *event, unsigned len) {
    struct caller *c = context;
    if (event[0] == ':') return;
    if (len >= 12 && !memcmp(event, "data: [DONE]", 12)) { c->is_done = true; return; }
    if (c->is_done) c->is_disordered = true;
    const char *content = memmem(event, len, "\"content\":\" ", 12);
    if (!content) content = memmem(event, len, "\"text\":\" ", 9);
    if (!content) {
        if (memmem(event, len, "\"error\"", 7)) {
            c->has_error_event = true;
            seen.error_events++;
        }
        return;
    }
    if (strtoul(strchr(content + 7, ' '), NULL, 10) != c->chunks) c->is_disordered = true;
    uint64_t at = now_ns();
    if (c->chunks++) histogram_add(&gap, at - c->last_chunk_ns);
    else histogram_add(&ttft, at - c->begun_ns);
    c->last_chunk_ns = at;
    seen.chunks++;
    if (c->kind == CANCEL && c->chunks >= c->cancel_after) c->is_cancelled = true;
}

static void judge(struct caller *c) {
    struct response *r = &c->response;
    seen.kinds[c->kind].statuses[r->status > 0 && r->status < STATUSES ? r->status : 0]++;
    bool is_ok = r->status == EXPECTED_STATUS[c->kind];
    if (!is_ok) note_failure(c, "status %d: %.300s", r->status, r->head);
    if (is_ok && (c->kind == STREAM || c->kind == CANCEL)) {
        bool is_complete = c->is_done && !c->is_disordered && !c->has_error_event && (int)c->chunks == options.chunks;
        if (!is_complete) {
            seen.kinds[c->kind].incomplete++;
            note_failure(c, "stream of %u chunks of %d, done %d, disordered %d, error event %d", c->chunks,
                         options.chunks, c->is_done, c->is_disordered, c->has_error_event);
        }
        is_ok = is_complete;
    }
    if (is_ok) histogram_add(&latency, now_ns() - c->begun_ns);
    finish(c, is_ok);
    if (r->close_after) disconnect(c);
    else c->is_reused = true;
}

static void cancel(struct caller *c) {
    int status = c->response.status;
    seen.kinds[c->kind].statuses[status > 0 && status < STATUSES ? status : 0]++;
    disconnect(c);
    finish(c, true);
    caller_next(c);
}

static void caller_read(struct caller *c) {
    static char bytes[READ_BYTES];
    ssize_t n = recv(c->fd, bytes, sizeof bytes, 0);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (!c->is_busy) { disconnect(c); return; } /* an idle connection was closed */
    struct response *r = &c->response;
    if (n <= 0) {
        if (n == 0 && r->state == UNTIL_CLOSE) { judge(c); caller_next(c); return; }
        broke(c, n ? strerror(errno) : "connection closed");
        return;
    }
    size_t used = response_feed(r, bytes, (size_t)n, take_event, c);
    if (c->is_cancelled) { cancel(c); return; }
    if (r->state == BROKEN || used < (size_t)n) { broke(c, r->state == BROKEN ? "malformed answer" : "bytes after the answer"); return; }
    if (r->state == COMPLETE) { judge(c); caller_next(c); }
}

static void caller_write(struct caller *c) {
    while (c->sent < c->request->len) {
        ssize_t n = send(c->fd, c->request->bytes + c->sent, c->request->len - c->sent, MSG_NOSIGNAL);
        if (n < 0 && (errno == EAGAIN || errno == EINTR)) { watch(c, true); return; }
        if (n < 0) { broke(c, strerror(errno)); return; }
        c->sent += (size_t)n;
    }
    watch(c, false);
    if (c->kind == CANCEL_EARLY && c->is_busy) cancel(c);
}

static void caller_connect(struct caller *c) {
    int one = 1;
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons((uint16_t)options.port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    c->fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (c->fd < 0) die("socket");
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    seen.connects++;
    if (connect(c->fd, (struct sockaddr *)&at, sizeof at) < 0 && errno != EINPROGRESS) { broke(c, strerror(errno)); return; }
    struct epoll_event e = {.events = EPOLLIN | EPOLLRDHUP | EPOLLOUT, .data.ptr = c};
    c->wants_write = true;
    if (epoll_ctl(poll_fd, EPOLL_CTL_ADD, c->fd, &e) < 0) die("epoll_ctl");
}

static bool is_over(uint64_t at) {
    return seen.sent >= options.requests || (options.duration_s > 0 && at - started_ns > (uint64_t)(options.duration_s * 1e9));
}

static void caller_next(struct caller *c) {
    uint64_t at = now_ns();
    if (is_over(at)) return;
    c->kind = choose_kind();
    c->request = &requests[c->kind];
    c->sent = c->chunks = 0;
    c->cancel_after = 1 + (options.chunks > 2 ? random_below((uint32_t)options.chunks - 2) : 0);
    c->is_done = c->is_disordered = c->has_error_event = c->is_cancelled = false;
    c->is_busy = true;
    c->begun_ns = at;
    response_begin(&c->response);
    seen.sent++;
    seen.kinds[c->kind].sent++;
    if (c->fd < 0) caller_connect(c);
    else if (c->is_connected && c->kind != CANCEL_EARLY) caller_write(c);
    else watch(c, true); /* CANCEL_EARLY from the loop only: it would recurse for ever */
}

/* ---- the run ---- */

static void run_timers(void) {
    uint64_t at = now_ns();
    while (timers.len && timers.by_due[0]->due_ns <= at) {
        struct caller *c = (struct caller *)timers.by_due[0];
        timer_clear(&timers, &c->timer);
        if (!c->is_busy) caller_next(c);
    }
}

static void run(void) {
    static struct epoll_event ready[EVENTS];
    callers = calloc((size_t)options.connections, sizeof *callers);
    if (!callers) die("out of memory");
    started_ns = progress_ns = now_ns();
    for (int i = 0; i < options.connections; i++) {
        callers[i].fd = callers[i].timer.at = -1;
        timer_set(&timers, &callers[i].timer, started_ns + (uint64_t)(options.spread_s * 1e9 * i / options.connections));
    }
    for (;;) {
        run_timers();
        uint64_t at = now_ns();
        if (seen.ok + seen.failed >= seen.sent && is_over(at)) return;
        if (at - progress_ns > (uint64_t)(options.stuck_s * 1e9)) {
            snprintf(seen.first_failure, sizeof seen.first_failure, "stuck: nothing ended for %.0f s", options.stuck_s);
            return;
        }
        int wait_ms = 100;
        if (timers.len) {
            uint64_t due = timers.by_due[0]->due_ns;
            int until = due <= at ? 0 : (int)((due - at + 999999) / 1000000);
            if (until < wait_ms) wait_ms = until;
        }
        int n = epoll_wait(poll_fd, ready, EVENTS, wait_ms);
        for (int i = 0; i < n; i++) {
            struct caller *c = ready[i].data.ptr;
            if (c->fd < 0) continue;
            if (ready[i].events & EPOLLOUT) {
                c->is_connected = true;
                if (c->is_busy) caller_write(c);
            }
            if (c->fd >= 0 && ready[i].events & (EPOLLIN | EPOLLRDHUP | EPOLLERR | EPOLLHUP)) caller_read(c);
        }
    }
}

static void report(double duration_s) {
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    double cpu_s = (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) + (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1e6;
    uint64_t ended = seen.ok + seen.failed;
    printf("{\"duration_s\": %.4f, \"client_cpu_s\": %.3f, \"sent\": %llu, \"ok\": %llu, \"failed\": %llu, "
           "\"unfinished\": %llu, \"chunks\": %llu, \"connects\": %llu, \"stale_connections\": %llu, "
           "\"error_events\": %llu, \"first_failure\": \"%s\", ",
           duration_s, cpu_s, (unsigned long long)seen.sent, (unsigned long long)seen.ok,
           (unsigned long long)seen.failed, (unsigned long long)(seen.sent - ended), (unsigned long long)seen.chunks,
           (unsigned long long)seen.connects, (unsigned long long)seen.stale, (unsigned long long)seen.error_events,
           seen.first_failure);
    histogram_print("latency", &latency);
    printf(", ");
    histogram_print("ttft", &ttft);
    printf(", ");
    histogram_print("gap", &gap);
    printf(", \"kinds\": {");
    for (int kind = 0, is_first = 1; kind < KINDS; kind++) {
        if (!seen.kinds[kind].sent) continue;
        printf("%s\"%s\": {\"sent\": %llu, \"ok\": %llu, \"failed\": %llu, \"broken\": %llu, \"incomplete\": %llu, \"statuses\": {",
               is_first ? "" : ", ", KIND_NAMES[kind], (unsigned long long)seen.kinds[kind].sent,
               (unsigned long long)seen.kinds[kind].ok, (unsigned long long)seen.kinds[kind].failed,
               (unsigned long long)seen.kinds[kind].broken, (unsigned long long)seen.kinds[kind].incomplete);
        for (int status = 0, is_first_status = 1; status < STATUSES; status++) {
            if (!seen.kinds[kind].statuses[status]) continue;
            printf("%s\"%d\": %llu", is_first_status ? "" : ", ", status, (unsigned long long)seen.kinds[kind].statuses[status]);
            is_first_status = 0;
        }
        printf("}}");
        is_first = 0;
    }
    printf("}}\n");
}

static void read_options(int argc, char **argv) {
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--stream")) { options.is_stream = true; continue; }
        if (!strcmp(argv[i], "--mix")) { options.is_mix = true; continue; }
        if (!strcmp(argv[i], "--include-usage")) { options.include_usage = true; continue; }
        if (i + 1 >= argc) { fprintf(stderr, "load: %s needs a value\n", argv[i]); exit(2); }
        char *name = argv[i++], *value = argv[i];
        if (!strcmp(name, "--port")) options.port = atoi(value);
        else if (!strcmp(name, "--connections")) options.connections = atoi(value);
        else if (!strcmp(name, "--requests")) options.requests = strtoull(value, NULL, 10);
        else if (!strcmp(name, "--duration-s")) options.duration_s = atof(value);
        else if (!strcmp(name, "--spread-s")) options.spread_s = atof(value);
        else if (!strcmp(name, "--stuck-s")) options.stuck_s = atof(value);
        else if (!strcmp(name, "--chunks")) options.chunks = atoi(value);
        else if (!strcmp(name, "--prompt-bytes")) options.prompt_bytes = strtoull(value, NULL, 10);
        else if (!strcmp(name, "--progress-every")) options.progress_every = atoi(value);
        else if (!strcmp(name, "--key")) options.key = value;
        else if (!strcmp(name, "--model")) options.model = value;
        else if (!strcmp(name, "--path")) options.path = value;
        else { fprintf(stderr, "load: unknown option %s\n", name); exit(2); }
    }
}

int main(int argc, char **argv) {
    read_options(argc, argv);
    signal(SIGPIPE, SIG_IGN);
    poll_fd = epoll_create1(EPOLL_CLOEXEC);
    char *prompt = make_prompt();
    for (int kind = 0; kind < KINDS; kind++) make_request((enum kind)kind, prompt, kind == STREAM || kind == CANCEL);
    free(prompt);
    run();
    report((double)(now_ns() - started_ns) / 1e9);
    return 0;
}
