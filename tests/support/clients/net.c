/* Recurrent nets, forward and backward, from a golden vector's JSON alone: rnn, lstm and gru, in
 * one layer and more, one direction and both, with every read-out.
 *
 *   cc -O2 -DREAL=double net.c -lm -o net && ./net CASE.json RESULT.json
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

static const char *fact(const char *key) { return after(after(text, "net"), key); }

static int word_is(const char *key, const char *value) {
    const char *at = fact(key);
    return at && at[0] == '"' && !strncmp(at + 1, value, strlen(value)) &&
           at[1 + strlen(value)] == '"';
}

static int whole(const char *key, int absent) { return fact(key) ? atoi(fact(key)) : absent; }

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

static real *zeros(int n) { return calloc((size_t)n + 1, sizeof(real)); }

static FILE *out;

static void show(const char *name, const char *suffix, const real *v, int n, const char *shape) {
    fprintf(out, "%s\"%s%s\":{\"shape\":[%s],\"data\":[", strcmp(name, "loss") ? "," : "", name,
            suffix, shape);
    for (int i = 0; i < n; ++i) {
        if (isfinite(v[i])) fprintf(out, "%s%.17g", i ? "," : "", (double)v[i]);
        else fprintf(out, "%s\"%s\"", i ? "," : "",
                     isnan(v[i]) ? "NaN" : v[i] > 0 ? "Infinity" : "-Infinity");
    }
    fprintf(out, "]}");
}

static char dims[64];
#define SHOW(name, suffix, array, count, ...) \
    (snprintf(dims, sizeof dims, __VA_ARGS__), show(name, suffix, array, count, dims))

enum { TANH, RELU, IDENTITY, SOFTSIGN, SIGMOID, NONE };
static int act = NONE;

static real logistic(real a) { return 1 / (1 + (real)exp(-a)); }

static real value(real a) {
    switch (act) {
    case TANH: return (real)tanh(a);
    case RELU: return a > 0 ? a : 0;
    case SOFTSIGN: return a / (1 + (real)fabs(a));
    case SIGMOID: return logistic(a);
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

enum { RNN, LSTM, GRU };
static int kind, T, B, H, P, *steps; /* P: the width of h, H without a projection */
static real gain;

/* A cell with its parameters and their gradients. Its steps s are in its own time. */
typedef struct {
    char suffix[24];
    int D, G, second, reverse, rank;          /* second: rows of bhh; rank: of h0, 0 if none */
    real *Whh, *Wxh, *bh, *bhh, *bhn, *Whr, *h0;
    real *dWhh, *dWxh, *dbh, *dbhn, *dWhr;
    real *a, *u, *c, *h, *dh, *dc;            /* pre-activations, the gru's Whn h + bhn, states */
} Cell;

static real *parameter(Cell *cell, const char *name, int *n, int *rank) {
    char full[64];
    snprintf(full, sizeof full, "in.%s%s", name, cell->suffix);
    return numbers(full, n, rank);
}

static Cell new_cell(const char *suffix, int D) {
    Cell cell = {.D = D, .G = kind == RNN ? 1 : kind == LSTM ? 4 : 3};
    int n, rank, G = cell.G;
    snprintf(cell.suffix, sizeof cell.suffix, "%s", suffix);
    cell.reverse = strstr(suffix, "_reverse") != NULL;
    cell.Whh = parameter(&cell, "Whh", &n, &rank);
    cell.Wxh = parameter(&cell, "Wxh", &n, &rank);
    cell.bh = parameter(&cell, "bh", &n, &rank);
    cell.bhn = parameter(&cell, "bhn", &n, &rank);
    cell.Whr = parameter(&cell, "Whr", &n, &rank);
    if ((cell.bhh = parameter(&cell, "bhh", &n, &rank))) cell.second = n;
    cell.h0 = parameter(&cell, "h0", &n, &cell.rank);
    if (!cell.h0) cell.rank = 0;
    cell.dWhh = zeros(G * H * P), cell.dWxh = zeros(G * H * D), cell.dbh = zeros(G * H);
    cell.dbhn = zeros(H), cell.dWhr = zeros(P * H);
    cell.a = zeros(T * B * G * H), cell.u = zeros(T * B * H);
    cell.h = zeros((T + 1) * B * P), cell.c = zeros((T + 1) * B * H);
    cell.dh = zeros((T + 1) * B * P), cell.dc = zeros(B * H);
    /* h0 (H), or (2, H) of the lstm, is shared by all examples */
    for (int b = 0; b < B && cell.h0; ++b) {
        for (int i = 0; i < P; ++i) cell.h[b * P + i] = cell.h0[i];
        for (int i = 0; i < H && kind == LSTM; ++i) cell.c[b * H + i] = cell.h0[H + i];
    }
    return cell;
}

/* The step of the input that a cell sees at its own step s. */
static int when(const Cell *cell, int s, int b) {
    return cell->reverse && s < steps[b] ? steps[b] - 1 - s : s;
}

static void forward(Cell *cell, const real *x) {
    int G = cell->G, D = cell->D;
    for (int s = 0; s < T; ++s)
        for (int b = 0; b < B; ++b) {
            const real *in = x + (when(cell, s, b) * B + b) * D, *h = cell->h + (s * B + b) * P;
            real *a = cell->a + (s * B + b) * G * H, *u = cell->u + (s * B + b) * H;
            real *next = cell->h + ((s + 1) * B + b) * P, *m = zeros(H);
            for (int r = 0; r < G * H; ++r) {
                real sum = cell->bh[r] + (r < cell->second ? cell->bhh[r] : 0), rec = 0;
                for (int j = 0; j < D; ++j) sum += cell->Wxh[r * D + j] * in[j];
                for (int j = 0; j < P; ++j) rec += cell->Whh[r * P + j] * h[j];
                if (kind == GRU && r >= 2 * H) {
                    u[r - 2 * H] = gain * (rec + cell->bhn[r - 2 * H]);
                    a[r] = gain * sum + logistic(a[r - 2 * H]) * u[r - 2 * H];
                } else {
                    a[r] = gain * (sum + rec);
                }
            }
            for (int i = 0; i < H; ++i) {
                if (kind == RNN) {
                    m[i] = value(a[i]);
                } else if (kind == LSTM) {
                    real *c = cell->c + ((s + 1) * B + b) * H;
                    c[i] = logistic(a[H + i]) * cell->c[(s * B + b) * H + i]
                         + logistic(a[i]) * value(a[2 * H + i]);
                    m[i] = logistic(a[3 * H + i]) * value(c[i]);
                } else {
                    real z = logistic(a[H + i]);
                    m[i] = (1 - z) * value(a[2 * H + i]) + z * h[i];
                }
            }
            for (int p = 0; p < P; ++p) {
                if (!cell->Whr) { next[p] = m[p]; continue; }
                next[p] = 0;
                for (int i = 0; i < H; ++i) next[p] += cell->Whr[p * H + i] * m[i];
            }
            free(m);
        }
}

/* cell->dh holds the direct gradient of every state; that of the input is added to dx. */
static void backward(Cell *cell, const real *x, real *dx) {
    int G = cell->G, D = cell->D;
    real *dm = zeros(H), *da = zeros(G * H), *du = zeros(H);
    for (int s = T - 1; s >= 0; --s)
        for (int b = 0; b < B; ++b) {
            int at = when(cell, s, b) * B + b, k = s * B + b, k1 = k + B;
            const real *a = cell->a + k * G * H, *h = cell->h + k * P, *e = cell->dh + k1 * P;
            real *dh = cell->dh + k * P, *dc = cell->dc + b * H;
            for (int i = 0; i < H; ++i) {
                dm[i] = cell->Whr ? 0 : e[i];
                if (!cell->Whr) continue;
                real o = logistic(a[3 * H + i]), m = o * value(cell->c[k1 * H + i]);
                for (int p = 0; p < P; ++p) {
                    dm[i] += cell->Whr[p * H + i] * e[p];
                    cell->dWhr[p * H + i] += e[p] * m;
                }
            }
            for (int i = 0; i < H; ++i) {
                if (kind == RNN) {
                    da[i] = dm[i] * slope(a[i], h[B * P + i]);
                } else if (kind == LSTM) {
                    real in = logistic(a[i]), f = logistic(a[H + i]), g = value(a[2 * H + i]);
                    real o = logistic(a[3 * H + i]), c1 = cell->c[k1 * H + i], v = value(c1);
                    da[3 * H + i] = dm[i] * v * o * (1 - o);
                    dc[i] += dm[i] * o * slope(c1, v);
                    da[i] = dc[i] * g * in * (1 - in);
                    da[H + i] = dc[i] * cell->c[k * H + i] * f * (1 - f);
                    da[2 * H + i] = dc[i] * in * slope(a[2 * H + i], g);
                    dc[i] *= f;
                } else {
                    real r = logistic(a[i]), z = logistic(a[H + i]), n = value(a[2 * H + i]);
                    real u = cell->u[k * H + i];
                    da[2 * H + i] = dm[i] * (1 - z) * slope(a[2 * H + i], n);
                    da[H + i] = dm[i] * (h[i] - n) * z * (1 - z);
                    da[i] = da[2 * H + i] * u * r * (1 - r);
                    du[i] = da[2 * H + i] * r;
                    dh[i] += dm[i] * z;
                    cell->dbhn[i] += gain * du[i];
                }
            }
            for (int r = 0; r < G * H; ++r) {
                real d = gain * da[r], rec = kind == GRU && r >= 2 * H ? gain * du[r - 2 * H] : d;
                cell->dbh[r] += d;
                for (int j = 0; j < D; ++j) {
                    cell->dWxh[r * D + j] += d * x[at * D + j];
                    dx[at * D + j] += d * cell->Wxh[r * D + j];
                }
                for (int j = 0; j < P; ++j) {
                    cell->dWhh[r * P + j] += rec * h[j];
                    dh[j] += rec * cell->Whh[r * P + j];
                }
            }
        }
    free(dm), free(da), free(du);
}

static void report(Cell *cell) {
    int G = cell->G, D = cell->D, two = kind == LSTM;
    const char *name = cell->suffix;
    SHOW("h", name, cell->h, (T + 1) * B * P, "%d,%d,%d", T + 1, B, P);
    SHOW("dWhh", name, cell->dWhh, G * H * P, "%d,%d", G * H, P);
    SHOW("dWxh", name, cell->dWxh, G * H * D, "%d,%d", G * H, D);
    SHOW("dbh", name, cell->dbh, G * H, "%d", G * H);
    if (cell->bhh) SHOW("dbhh", name, cell->dbh, cell->second, "%d", cell->second);
    if (cell->bhn) SHOW("dbhn", name, cell->dbhn, H, "%d", H);
    if (cell->Whr) SHOW("dWhr", name, cell->dWhr, P * H, "%d,%d", P, H);
    real *start = zeros(2 * B * H); /* [h, c] by example, or their sums */
    int shared = cell->rank > 0, count = shared ? 1 : B;
    for (int b = 0; b < B; ++b)
        for (int i = 0; i < H; ++i) {
            int to = (shared ? 0 : b) * H + i;
            if (i < P) start[to] += cell->dh[b * P + i];
            start[count * H + to] += cell->dc[b * H + i];
        }
    if (shared && two) SHOW("dh0", name, start, 2 * H, "2,%d", H);
    else if (shared) SHOW("dh0", name, start, H, "%d", H);
    else if (two) SHOW("dh0", name, start, 2 * B * H, "2,%d,%d", B, H);
    else SHOW("dh0", name, start, B * H, "%d,%d", B, H);
}

int main(int argc, char **argv) {
    if (argc != 3) { fprintf(stderr, "usage: net CASE.json RESULT.json\n"); return 1; }
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
    kind = word_is("cell", "rnn") ? RNN : word_is("cell", "lstm") ? LSTM : GRU;
    int stacked = word_is("kind", "stacked");
    if ((!stacked && !word_is("kind", "recurrent")) || act == NONE || after(text, "in.Wpi") ||
        (kind == GRU && !word_is("cell", "gru")) || strncmp(fact("transition"), "null", 4)) return 2;
    int last = word_is("readout", "last"), alone = word_is("readout", "none"), n, rank, ny;
    int layers = whole("layers", 1), N = stacked && !strncmp(fact("bidirectional"), "true", 4) ? 2 : 1;
    int D = whole("inputs", 0), C = whole("outputs", 0);
    H = whole("hidden", 0), P = whole("projection", H);
    gain = (real)strtod(fact("gain"), NULL);
    real *Why = numbers("in.Why", &n, &rank), *by = numbers("in.by", &n, &rank);
    real *y = numbers("in.y", &ny, &rank), *mask = numbers("in.mask", &n, &rank);
    real *x = numbers("in.x", &n, &rank);
    const char *shape = strchr(after(after(text, "in.x"), "shape"), '[') + 1;
    T = (int)strtol(shape, (char **)&shape, 10);
    B = atoi(shape + 1);
    if (T * B * D != n) return 1;
    steps = malloc(sizeof(int) * (size_t)B);
    for (int b = 0; b < B; ++b) {
        for (steps[b] = 0; steps[b] < T && (!mask || mask[steps[b] * B + b] != 0); ++steps[b]) {}
    }

    Cell *cells = malloc(sizeof(Cell) * (size_t)(layers * N));
    real **seen = malloc(sizeof(real *) * (size_t)(layers + 1));
    int W = N * P; /* the width of a layer */
    seen[0] = x;
    for (int l = 0; l < layers; ++l) {
        seen[l + 1] = zeros(T * B * W);
        for (int d = 0; d < N; ++d) {
            char suffix[24] = "";
            if (stacked) snprintf(suffix, sizeof suffix, "_l%d%s", l, d ? "_reverse" : "");
            Cell *cell = &cells[l * N + d];
            *cell = new_cell(suffix, l ? W : D);
            forward(cell, seen[l]);
            for (int b = 0; b < B; ++b)
                for (int s = 0; s < (stacked ? steps[b] : T); ++s)
                    for (int i = 0; i < P; ++i)
                        seen[l + 1][(when(cell, s, b) * B + b) * W + d * P + i] =
                            cell->h[((s + 1) * B + b) * P + i];
        }
    }

    /* rows: what is read out; v: the outputs */
    int R = last ? B : T * B;
    real *rows = zeros(R * W), *drows = zeros(R * W), *v = zeros(R * C), *dv = zeros(R * C);
    for (int p = 0; p < R; ++p)
        for (int i = 0; i < W; ++i)
            rows[p * W + i] = last ? cells[(layers - 1) * N + i / P].h[(steps[p] * B + p) * P + i % P]
                                   : seen[layers][p * W + i];
    real loss = 0, counted = 0;
    for (int p = 0; p < R; ++p) counted += last || !mask || mask[p] != 0;
    real divisor = word_is("reduction", "sum") ? 1 : word_is("reduction", "mean") ? counted : (real)B;
    for (int p = 0; p < R; ++p) {
        real *o = v + p * C, *grad = dv + p * C, each = 0;
        for (int c = 0; c < C; ++c) {
            o[c] = alone ? rows[p * W + c] : by[c];
            for (int i = 0; i < W && !alone; ++i) o[c] += Why[c * W + i] * rows[p * W + i];
        }
        if (word_is("loss", "cross_entropy")) {
            real top = o[0], total = 0;
            for (int c = 1; c < C; ++c) top = o[c] > top ? o[c] : top;
            for (int c = 0; c < C; ++c) total += (real)exp(o[c] - top);
            each = (real)log(total) + top - o[(int)y[p]];
            for (int c = 0; c < C; ++c)
                grad[c] = ((real)exp(o[c] - top) / total - (c == (int)y[p])) / divisor;
        } else {
            for (int c = 0; c < C; ++c) {
                real off = o[c] - y[p * C + c];
                each += word_is("loss", "none") ? o[c] * y[p * C + c] : off * off / (real)C;
                grad[c] = word_is("loss", "none") ? y[p * C + c] : 2 * off / (real)C / divisor;
            }
        }
        if (!last && mask && mask[p] == 0) {
            for (int c = 0; c < C; ++c) grad[c] = 0;
        } else {
            loss += each / divisor;
        }
    }

    real *dWhy = zeros(C * W), *dby = zeros(C), *d = NULL;
    for (int p = 0; p < R; ++p)
        for (int c = 0; c < C; ++c) {
            dby[c] += dv[p * C + c];
            if (alone) drows[p * W + c] = dv[p * C + c];
            for (int i = 0; i < W && !alone; ++i) {
                dWhy[c * W + i] += dv[p * C + c] * rows[p * W + i];
                drows[p * W + i] += dv[p * C + c] * Why[c * W + i];
            }
        }
    for (int l = layers - 1; l >= 0; --l) {
        real *below = zeros(T * B * (l ? W : D));
        for (int dir = 0; dir < N; ++dir) {
            Cell *cell = &cells[l * N + dir];
            for (int b = 0; b < B; ++b) {
                for (int i = 0; i < P && last && !d; ++i)
                    cell->dh[(steps[b] * B + b) * P + i] = drows[b * W + dir * P + i];
                for (int s = 0; s < (stacked ? steps[b] : T) && !(last && !d); ++s)
                    for (int i = 0; i < P; ++i)
                        cell->dh[((s + 1) * B + b) * P + i] =
                            (d ? d : drows)[(when(cell, s, b) * B + b) * W + dir * P + i];
            }
            backward(cell, seen[l], below);
        }
        d = below;
    }

    out = fopen(argv[2], "w");
    if (!out) { perror(argv[2]); return 1; }
    fprintf(out, "{\"dtype\":\"%s\",\"arrays\":{", sizeof(real) == 4 ? "float32" : "float64");
    SHOW("loss", "", &loss, 1, "%s", "");
    if (last) SHOW("outputs", "", v, R * C, "%d,%d", B, C);
    else SHOW("outputs", "", v, R * C, "%d,%d,%d", T, B, C);
    if (!alone) {
        SHOW("dWhy", "", dWhy, C * W, "%d,%d", C, W);
        SHOW("dby", "", dby, C, "%d", C);
    }
    SHOW("dx", "", d, T * B * D, "%d,%d,%d", T, B, D);
    for (int i = 0; i < layers * N; ++i) report(&cells[i]);
    fprintf(out, "}}\n");
    return fclose(out) ? 1 : 0;
}
