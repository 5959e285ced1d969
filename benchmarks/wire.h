/* Reads HTTP/1.1 answers and the SSE events in them, incrementally: bytes in, payload and whole events out. */
#ifndef WIRE_H
#define WIRE_H

#define _GNU_SOURCE
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum wire_state { IN_HEAD, IN_LENGTH, IN_CHUNK_SIZE, IN_CHUNK, IN_CHUNK_END, IN_TRAILER, UNTIL_CLOSE, COMPLETE, BROKEN };

enum { HEAD_BYTES = 16384, EVENT_BYTES = 16384 };

struct response {
    enum wire_state state;
    int status;
    bool close_after, is_event_stream;
    uint64_t remaining;
    char line[32]; /* chunk size or trailer line */
    unsigned line_len;
    char head[HEAD_BYTES];
    unsigned head_len;
    char event[EVENT_BYTES]; /* bytes of the event under way */
    unsigned event_len;
};

typedef void on_event(void *context, const char *event, unsigned len);

static inline void response_begin(struct response *r) {
    r->state = IN_HEAD;
    r->status = 0;
    r->close_after = r->is_event_stream = false;
    r->remaining = 0;
    r->line_len = r->head_len = r->event_len = 0;
}

static inline void response_head(struct response *r) {
    bool has_length = false, is_chunked = false;
    if (r->head_len < 12 || memcmp(r->head, "HTTP/1.", 7)) { r->state = BROKEN; return; }
    r->status = atoi(r->head + 9);
    for (char *line = r->head; (line = strchr(line, '\n')); ) {
        line++;
        if (!strncasecmp(line, "content-length:", 15)) { has_length = true; r->remaining = strtoull(line + 15, NULL, 10); }
        else if (!strncasecmp(line, "transfer-encoding:", 18)) is_chunked = true;
        else if (!strncasecmp(line, "connection: close", 17)) r->close_after = true;
        else if (!strncasecmp(line, "content-type: text/event-stream", 31)) r->is_event_stream = true;
    }
    if (is_chunked) r->state = IN_CHUNK_SIZE;
    else if (has_length) r->state = r->remaining ? IN_LENGTH : COMPLETE;
    else { r->state = UNTIL_CLOSE; r->close_after = true; }
}

static inline void response_payload(struct response *r, const char *bytes, size_t len, on_event *emit, void *context) {
    if (!r->is_event_stream) return;
    while (len) {
        const char *newline = memchr(bytes, '\n', len);
        size_t n = newline ? (size_t)(newline - bytes) + 1 : len;
        if (r->event_len + n > EVENT_BYTES) { r->state = BROKEN; return; }
        memcpy(r->event + r->event_len, bytes, n);
        r->event_len += (unsigned)n;
        bytes += n;
        len -= n;
        if (r->event_len >= 2 && r->event[r->event_len - 1] == '\n' &&
            (r->event[r->event_len - 2] == '\n' || (r->event_len >= 4 && !memcmp(r->event + r->event_len - 4, "\r\n\r\n", 4)))) {
            emit(context, r->event, r->event_len);
            r->event_len = 0;
        }
    }
}

/* Collects one line into r->line (its tail is dropped when too long). Returns true at its end. */
static inline bool response_line(struct response *r, const char **bytes, size_t *len) {
    while (*len) {
        char byte = *(*bytes)++;
        (*len)--;
        if (byte == '\n') return true;
        if (byte != '\r' && r->line_len < sizeof r->line - 1) r->line[r->line_len++] = byte;
    }
    return false;
}

/* Returns how many bytes belonged to this response. */
static inline size_t response_feed(struct response *r, const char *bytes, size_t len, on_event *emit, void *context) {
    const char *start = bytes;
    while (len && r->state != COMPLETE && r->state != BROKEN) {
        switch (r->state) {
        case IN_HEAD: {
            size_t room = HEAD_BYTES - 1 - r->head_len, n = len < room ? len : room;
            unsigned from = r->head_len < 3 ? 0 : r->head_len - 3, before = r->head_len;
            memcpy(r->head + r->head_len, bytes, n);
            r->head_len += (unsigned)n;
            char *end = memmem(r->head + from, r->head_len - from, "\r\n\r\n", 4);
            if (!end) {
                if (n == room) r->state = BROKEN;
                bytes += n;
                len -= n;
                break;
            }
            r->head_len = (unsigned)(end - r->head) + 4;
            r->head[r->head_len] = 0;
            bytes += r->head_len - before;
            len -= r->head_len - before;
            response_head(r);
            break;
        }
        case IN_LENGTH:
        case IN_CHUNK:
        case UNTIL_CLOSE: {
            size_t n = r->state == UNTIL_CLOSE || len < r->remaining ? len : r->remaining;
            enum wire_state at = r->state;
            response_payload(r, bytes, n, emit, context);
            bytes += n;
            len -= n;
            r->remaining -= at == UNTIL_CLOSE ? 0 : n;
            if (r->state == at && at != UNTIL_CLOSE && !r->remaining) r->state = at == IN_LENGTH ? COMPLETE : IN_CHUNK_END;
            break;
        }
        case IN_CHUNK_SIZE:
            if (!response_line(r, &bytes, &len)) break;
            r->line[r->line_len] = 0;
            r->remaining = strtoull(r->line, NULL, 16);
            r->state = !r->line_len ? BROKEN : r->remaining ? IN_CHUNK : IN_TRAILER;
            r->line_len = 0;
            break;
        case IN_CHUNK_END:
            if (!response_line(r, &bytes, &len)) break;
            r->state = r->line_len ? BROKEN : IN_CHUNK_SIZE;
            r->line_len = 0;
            break;
        default: /* IN_TRAILER */
            if (!response_line(r, &bytes, &len)) break;
            if (!r->line_len) r->state = COMPLETE;
            r->line_len = 0;
        }
    }
    return (size_t)(bytes - start);
}

#endif
