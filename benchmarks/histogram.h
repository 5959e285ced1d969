/* A latency histogram with bounded error (under 1 %): 128 buckets per power of two, values in nanoseconds. */
#ifndef HISTOGRAM_H
#define HISTOGRAM_H

#include <stdint.h>
#include <stdio.h>

enum { SUB_BITS = 7, SUB = 1 << SUB_BITS, HISTOGRAM_BUCKETS = (65 - SUB_BITS) * SUB };

struct histogram {
    uint64_t counts[HISTOGRAM_BUCKETS], total, max_ns, sum_ns;
};

static inline void histogram_add(struct histogram *h, uint64_t ns) {
    uint64_t bucket = ns;
    if (ns >= SUB) {
        int shift = 63 - SUB_BITS - __builtin_clzll(ns);
        bucket = (uint64_t)(shift + 1) * SUB + (ns >> shift) - SUB;
    }
    h->counts[bucket]++;
    h->total++;
    h->sum_ns += ns;
    if (ns > h->max_ns) h->max_ns = ns;
}

/* The value at or below which `ratio` of the samples lie; 0 without samples. */
static inline double histogram_quantile_ms(const struct histogram *h, double ratio) {
    uint64_t wanted = (uint64_t)(ratio * (double)h->total + 0.999999), seen = 0;
    if (!h->total) return 0;
    if (!wanted) wanted = 1;
    for (uint64_t bucket = 0; bucket < HISTOGRAM_BUCKETS; bucket++) {
        seen += h->counts[bucket];
        if (seen < wanted) continue;
        int shift = bucket < SUB ? 0 : (int)(bucket / SUB) - 1;
        uint64_t low = bucket < SUB ? bucket : (bucket % SUB + SUB) << shift;
        double value = (double)low + (double)(1ull << shift) / 2;
        return (value > (double)h->max_ns ? (double)h->max_ns : value) / 1e6;
    }
    return (double)h->max_ns / 1e6;
}

static inline void histogram_print(const char *name, const struct histogram *h) {
    if (!h->total) {
        printf("\"%s\": null", name);
        return;
    }
    printf("\"%s\": {\"samples\": %llu, \"mean_ms\": %.4f, \"p50_ms\": %.4f, \"p90_ms\": %.4f, \"p99_ms\": %.4f, "
           "\"p999_ms\": %.4f, \"max_ms\": %.4f}",
           name, (unsigned long long)h->total, (double)h->sum_ns / (double)h->total / 1e6,
           histogram_quantile_ms(h, 0.5), histogram_quantile_ms(h, 0.9), histogram_quantile_ms(h, 0.99),
           histogram_quantile_ms(h, 0.999), (double)h->max_ns / 1e6);
}

#endif
