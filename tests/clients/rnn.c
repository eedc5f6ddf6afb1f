/* A simple recurrent net, forward and backward, from a golden vector's JSON alone.
 *
 *   cc -O2 -DREAL=double rnn.c -lm -o rnn && ./rnn CASE.json RESULT.json
 *
 * Exit status 2: the case is not one of the nets written here. Everything follows the
 * manifest's "conventions"; no formula was taken from elsewhere.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifndef REAL
#define REAL double
#endif
typedef REAL real;

static char *text;

static const char *after(const char *from, const char *key) {
    char quoted[64];
    snprintf(quoted, sizeof quoted, "\"%s\":", key);
    const char *at = strstr(from, quoted);
    return at ? at + strlen(quoted) : NULL;
}

static int word_is(const char *key, const char *value) {
    const char *at = after(after(text, "net"), key);
    return at && at[0] == '"' && !strncmp(at + 1, value, strlen(value)) &&
           at[1 + strlen(value)] == '"';
}

/* The flat data of an array, NULL if it is not there; its length in n, its rank in rank. */
static real *numbers(const char *name, int *n, int *rank) {
    const char *entry = after(text, name);
    if (!entry) return NULL;
    const char *shape = strchr(after(entry, "shape"), '[') + 1;
    for (*rank = 0, *n = 1; *shape != ']'; ++*rank) {
        *n *= (int)strtol(shape, (char **)&shape, 10);
        if (*shape == ',') ++shape;
    }
    const char *at = strchr(after(entry, "data"), '[') + 1;
    real *out = malloc(sizeof(real) * (size_t)(*n + 1));
    for (int i = 0; i < *n; ++i, at += *at == ',') {
        if (*at == 't' || *at == 'f') {
            out[i] = *at == 't';
            at += *at == 't' ? 4 : 5;
        } else {
            out[i] = (real)strtod(at, (char **)&at);
        }
    }
    return out;
}

static real *need(const char *name, int *n) {
    int rank;
    real *found = numbers(name, n, &rank);
    if (!found) { fprintf(stderr, "%s is missing\n", name); exit(1); }
    return found;
}

static real *zeros(int n) { return calloc((size_t)n + 1, sizeof(real)); }

static void show(FILE *file, const char *name, const char *shape, const real *v, int n) {
    fprintf(file, "%s\"%s\":{\"shape\":[%s],\"data\":[", strcmp(name, "loss") ? "," : "", name, shape);
    for (int i = 0; i < n; ++i) {
        if (isfinite(v[i])) fprintf(file, "%s%.17g", i ? "," : "", (double)v[i]);
        else fprintf(file, "%s\"%s\"", i ? "," : "", isnan(v[i]) ? "NaN" : v[i] > 0 ? "Infinity" : "-Infinity");
    }
    fprintf(file, "]}");
}

enum { TANH, RELU, IDENTITY, SOFTSIGN, SIGMOID, NONE };
static int act = NONE;

static real value(real a) {
    switch (act) {
    case TANH: return (real)tanh(a);
    case RELU: return a > 0 ? a : 0;
    case SOFTSIGN: return a / (1 + (real)fabs(a));
    case SIGMOID: return 1 / (1 + (real)exp(-a));
    default: return a;
    }
}

static real slope(real a, real h) {
    switch (act) {
    case TANH: return 1 - h * h;
    case RELU: return a > 0;
    case SOFTSIGN: return 1 / ((1 + (real)fabs(a)) * (1 + (real)fabs(a)));
    case SIGMOID: return h * (1 - h);
    default: return 1;
    }
}

int main(int argc, char **argv) {
    if (argc != 3) { fprintf(stderr, "usage: rnn CASE.json RESULT.json\n"); return 1; }
    FILE *in = fopen(argv[1], "rb");
    if (!in) { perror(argv[1]); return 1; }
    fseek(in, 0, SEEK_END);
    long size = ftell(in);
    rewind(in);
    text = malloc((size_t)size + 1);
    if (fread(text, 1, (size_t)size, in) != (size_t)size) return 1;
    text[size] = 0;
    fclose(in);

    const char *known[] = {"tanh", "relu", "identity", "softsign", "sigmoid"};
    for (int i = 0; i < NONE; ++i)
        if (word_is("activation", known[i])) act = i;
    if (!word_is("kind", "recurrent") || strncmp(after(after(text, "net"), "transition"), "null", 4) || !word_is("cell", "rnn") || act == NONE) return 2;
    int every = word_is("readout", "every"), entropy = word_is("loss", "cross_entropy");
    real gain = (real)strtod(after(after(text, "net"), "gain"), NULL);
    int D = atoi(after(after(text, "net"), "inputs")), H = atoi(after(after(text, "net"), "hidden"));
    int C = atoi(after(after(text, "net"), "outputs")), n, rank;

    real *Whh = need("in.Whh", &n), *Wxh = need("in.Wxh", &n), *bh = need("in.bh", &n);
    real *Why = need("in.Why", &n), *by = need("in.by", &n), *h0 = numbers("in.h0", &n, &rank);
    real *x = need("in.x", &n), *y;
    int TBD = n, ny, masked, B, T;
    const char *shape = strchr(after(after(text, "in.x"), "shape"), '[') + 1;
    T = (int)strtol(shape, (char **)&shape, 10);
    B = atoi(shape + 1);
    y = need("in.y", &ny);
    real *mask = numbers("in.mask", &masked, &rank);
    if (T * B * D != TBD) return 1;

    int S = B * H, P = (every ? T : 1) * B;
    real *a = zeros(T * S), *h = zeros((T + 1) * S), *v = zeros(P * C), *dv = zeros(P * C);
    int *step = malloc(sizeof(int) * (size_t)B);
    for (int b = 0; b < B; ++b) {
        for (int i = 0; i < H; ++i) h[b * H + i] = h0 ? h0[i] : 0;
        step[b] = T;
        if (mask) {
            for (step[b] = 0; step[b] < T && mask[step[b] * B + b] != 0; ++step[b]) {}
        }
    }
    for (int t = 0; t < T; ++t)
        for (int b = 0; b < B; ++b)
            for (int i = 0; i < H; ++i) {
                real sum = bh[i];
                for (int j = 0; j < D; ++j) sum += Wxh[i * D + j] * x[(t * B + b) * D + j];
                for (int j = 0; j < H; ++j) sum += Whh[i * H + j] * h[t * S + b * H + j];
                a[t * S + b * H + i] = gain * sum;
                h[(t + 1) * S + b * H + i] = value(gain * sum);
            }

    real loss = 0, counted = 0;
    for (int p = 0; p < P; ++p) counted += !(every && mask) || mask[p] != 0;
    real divisor = word_is("reduction", "sum") ? 1 : word_is("reduction", "mean") ? counted : (real)B;
    for (int p = 0; p < P; ++p) {
        int b = p % B;
        const real *from = h + (every ? p / B + 1 : step[b]) * S + b * H;
        real *out = v + p * C, *grad = dv + p * C, each = 0;
        for (int c = 0; c < C; ++c) {
            out[c] = by[c];
            for (int i = 0; i < H; ++i) out[c] += Why[c * H + i] * from[i];
        }
        if (entropy) {
            real top = out[0], total = 0;
            for (int c = 1; c < C; ++c) top = out[c] > top ? out[c] : top;
            for (int c = 0; c < C; ++c) total += (real)exp(out[c] - top);
            each = (real)log(total) + top - out[(int)y[p]];
            for (int c = 0; c < C; ++c)
                grad[c] = ((real)exp(out[c] - top) / total - (c == (int)y[p])) / divisor;
        } else {
            for (int c = 0; c < C; ++c) {
                real off = out[c] - y[p * C + c];
                each += off * off / (real)C;
                grad[c] = 2 * off / (real)C / divisor;
            }
        }
        if (every && mask && mask[p] == 0) {
            for (int c = 0; c < C; ++c) grad[c] = 0;
        } else {
            loss += each / divisor;
        }
    }

    real *dWhh = zeros(H * H), *dWxh = zeros(H * D), *dbh = zeros(H), *dWhy = zeros(C * H);
    real *dby = zeros(C), *dx = zeros(TBD), *dh = zeros((T + 1) * S);
    for (int p = 0; p < P; ++p) {
        int b = p % B, at = (every ? p / B + 1 : step[b]) * S + b * H;
        for (int c = 0; c < C; ++c) {
            dby[c] += dv[p * C + c];
            for (int i = 0; i < H; ++i) {
                dWhy[c * H + i] += dv[p * C + c] * h[at + i];
                dh[at + i] += dv[p * C + c] * Why[c * H + i];
            }
        }
    }
    for (int t = T - 1; t >= 0; --t)
        for (int b = 0; b < B; ++b)
            for (int i = 0; i < H; ++i) {
                int k = t * S + b * H;
                real da = gain * dh[k + S + i] * slope(a[k + i], h[k + S + i]);
                dbh[i] += da;
                for (int j = 0; j < D; ++j) {
                    dWxh[i * D + j] += da * x[(t * B + b) * D + j];
                    dx[(t * B + b) * D + j] += da * Wxh[i * D + j];
                }
                for (int j = 0; j < H; ++j) {
                    dWhh[i * H + j] += da * h[k + j];
                    dh[k + j] += da * Whh[i * H + j];
                }
            }

    FILE *out = fopen(argv[2], "w");
    if (!out) { perror(argv[2]); return 1; }
    char dims[64];
#define SHOW(name, array, count, ...) \
    (snprintf(dims, sizeof dims, __VA_ARGS__), show(out, name, dims, array, count))
    fprintf(out, "{\"dtype\":\"%s\",\"arrays\":{", sizeof(real) == 4 ? "float32" : "float64");
    SHOW("loss", &loss, 1, "%s", "");
    if (every) SHOW("outputs", v, P * C, "%d,%d,%d", T, B, C);
    else SHOW("outputs", v, P * C, "%d,%d", B, C);
    SHOW("h", h, (T + 1) * S, "%d,%d,%d", T + 1, B, H);
    SHOW("dWhh", dWhh, H * H, "%d,%d", H, H);
    SHOW("dWxh", dWxh, H * D, "%d,%d", H, D);
    SHOW("dbh", dbh, H, "%d", H);
    SHOW("dWhy", dWhy, C * H, "%d,%d", C, H);
    SHOW("dby", dby, C, "%d", C);
    SHOW("dx", dx, TBD, "%d,%d,%d", T, B, D);
    if (h0) {
        for (int b = 1; b < B; ++b)
            for (int i = 0; i < H; ++i) dh[i] += dh[b * H + i];
        SHOW("dh0", dh, H, "%d", H);
    } else {
        SHOW("dh0", dh, S, "%d,%d", B, H);
    }
    fprintf(out, "}}\n");
    return fclose(out) ? 1 : 0;
}
