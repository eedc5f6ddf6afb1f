/* The four cells with their read-out, forward and backward, in plain loops: once more, because only
 * here every sum can be taken in any order, and formulas associate in another way.
 *
 * Compiled by benchmarks.judge.implementations with -DREAL=float or double and with ORDER, the order
 * of every sum: 0 first to last, started at the bias; 1 last to first, the bias last; 2 in four
 * lanes; 3 pairwise; 4 compensated (Kahan); 5 first to last, the bias last; 6 in blocks of 64; 7 even
 * terms, then odd ones; 8 in double; 9 in eight lanes. JOIN, how the parts of a pre-activation are
 * joined: 0 one sum from the bias over the inputs to the states, 1 one from the states to the inputs
 * and the bias, 2 two sums and the bias last, 3 one from the bias over the states to the inputs, 4
 * the inputs' sum, and the states' with the bias, 5 one over the inputs, the bias and the states.
 * STEPS, weight gradients: 0 one sum over time and batch, 1 onto the gradient from the last step to
 * the first, 2 a sum a step, added from the last to the first, 3 onto it from the first to the last.
 * FORM: 0 as in refnet.cells, 1 other associations of the same formulas. FLUSH: 1 if subnormal
 * numbers are zero, on processors with SSE.
 */
#include <stdlib.h>
#include <string.h>
#include <tgmath.h>
#if FLUSH
#include <xmmintrin.h>
#endif

#ifndef JOIN
#define JOIN 0
#endif
#ifndef STEPS
#define STEPS 0
#endif
#ifndef FORM
#define FORM 0
#endif

typedef REAL real;

#if ORDER == 3
static real pairwise(const real *a, long sa, const real *b, long sb, long n) {
    if (n == 1) return *a * *b;
    long half = n / 2;
    return pairwise(a, sa, b, sb, half) + pairwise(a + half * sa, sa, b + half * sb, sb, n - half);
}
#endif

/* start + sum over k of a[k sa] b[k sb] */
static real dot(const real *a, long sa, const real *b, long sb, long n, real start) {
    if (n == 0) return start;
#if ORDER == 0
    for (long k = 0; k < n; ++k) start += a[k * sa] * b[k * sb];
    return start;
#elif ORDER == 1
    real sum = 0;
    for (long k = n; k-- > 0;) sum += a[k * sa] * b[k * sb];
    return sum + start;
#elif ORDER == 2
    real lane[4] = {0, 0, 0, 0};
    for (long k = 0; k < n; ++k) lane[k % 4] += a[k * sa] * b[k * sb];
    return start + ((lane[0] + lane[1]) + (lane[2] + lane[3]));
#elif ORDER == 3
    return start + pairwise(a, sa, b, sb, n);
#elif ORDER == 5
    real sum = 0;
    for (long k = 0; k < n; ++k) sum += a[k * sa] * b[k * sb];
    return sum + start;
#elif ORDER == 6
    for (long first = 0; first < n; first += 64) {
        real sum = 0;
        for (long k = first; k < n && k < first + 64; ++k) sum += a[k * sa] * b[k * sb];
        start += sum;
    }
    return start;
#elif ORDER == 7
    for (int odd = 0; odd < 2; ++odd)
        for (long k = odd; k < n; k += 2) start += a[k * sa] * b[k * sb];
    return start;
#elif ORDER == 8
    double wide = start;
    for (long k = 0; k < n; ++k) wide += (double)a[k * sa] * b[k * sb];
    return (real)wide;
#elif ORDER == 9
    real lane[8] = {0}, sum = 0;
    for (long k = 0; k < n; ++k) lane[k % 8] += a[k * sa] * b[k * sb];
    for (int j = 0; j < 8; ++j) sum += lane[j];
    return sum + start;
#else
    real lost = 0;
    for (long k = 0; k < n; ++k) {
        real term = a[k * sa] * b[k * sb] - lost, next = start + term;
        lost = (next - start) - term;
        start = next;
    }
    return start;
#endif
}

static const real one = 1;

static real sum(const real *a, long sa, long n) { return dot(a, sa, &one, 0, n, 0); }
static real s(real a) { return 1 / (1 + exp(-a)); }
static real f(int relu, real a) { return relu ? (a > 0 ? a : 0) : tanh(a); }
#if FORM == 0
static real slope(int relu, real a, real h) { return relu ? (real)(a > 0) : 1 - h * h; }
static real ds(real v) { return v * (1 - v); }
static real mix(real z, real n, real h) { return (1 - z) * n + z * h; }
static real triple(real a, real b, real c) { return a * (b * c); }
#else
static real slope(int relu, real a, real h) { return relu ? (real)(a > 0) : (1 - h) * (1 + h); }
static real ds(real v) { return v - v * v; }
static real mix(real z, real n, real h) { return n + z * (h - n); }
static real triple(real a, real b, real c) { return a * b * c; }
#endif

/* the bias, the inputs' part and, where W is given, the states' */
static real join(real bias, const real *V, const real *x, long D, const real *W, const real *h,
                 long H) {
    if (!W) H = 0;
    if (JOIN == 0) return dot(W, 1, h, 1, H, dot(V, 1, x, 1, D, bias));
    if (JOIN == 3) return dot(V, 1, x, 1, D, dot(W, 1, h, 1, H, bias));
    if (JOIN == 4) return dot(V, 1, x, 1, D, 0) + (dot(W, 1, h, 1, H, 0) + bias);
    if (JOIN == 5) return dot(W, 1, h, 1, H, dot(V, 1, x, 1, D, 0) + bias);
    if (JOIN == 1) return dot(V, 1, x, 1, D, dot(W, 1, h, 1, H, 0)) + bias;
    return dot(V, 1, x, 1, D, 0) + dot(W, 1, h, 1, H, 0) + bias;
}

/* sum over T steps of B rows of a[n sa] b[n sb] */
static real over(const real *a, long sa, const real *b, long sb, long T, long B) {
    if (STEPS == 0) return dot(a, sa, b, sb, T * B, 0);
    real g = 0;
    for (long n = 0; n < T; ++n) {
        long t = STEPS == 3 ? n : T - 1 - n;
        const real *at = a + t * B * sa, *bt = b + t * B * sb;
        g = STEPS != 2 ? dot(at, sa, bt, sb, B, g) : g + dot(at, sa, bt, sb, B, 0);
    }
    return g;
}

enum { RNN, LSTM, GRU, BEFORE };

/* size: T B D H C cell every relu entropy; step (B): each sequence's last state; counted (N): the
 * predictions that count. Gradients and h0 as in refnet: (B, H), or (2, B, H) for the LSTM.
 * Workspace: a, v, da, rec (T, B, G H), u, k (T, B, H), dout (N, C), rows (N, H), direct
 * (T + 1, B, H). */
void net(const long *size, double divisor, const long *step, const unsigned char *counted,
         const real *x, const long *label, const real *target, const real *Whh, const real *Wxh,
         const real *bh, const real *bhn, const real *peep, const real *Why, const real *by,
         const real *h0, real *loss, real *out, real *h, real *c, real *dWhh, real *dWxh,
         real *dbh, real *dbhn, real *dpeep, real *dWhy, real *dby, real *dh0, real *dx) {
#if FLUSH
    unsigned settings = _mm_getcsr();
    _mm_setcsr(settings | 0x8040);
#endif
    long T = size[0], B = size[1], D = size[2], H = size[3], C = size[4];
    int cell = (int)size[5], every = (int)size[6], relu = (int)size[7], entropy = (int)size[8];
    long G = cell == RNN ? 1 : cell == LSTM ? 4 : 3, R = G * H, S = B * H, N = every ? T * B : B;
    real *a = calloc((size_t)(4 * T * B * R + 2 * T * S + N * (C + H) + (T + 1) * S), sizeof(real));
    real *v = a + T * B * R, *da = v + T * B * R, *rec = da + T * B * R, *u = rec + T * B * R;
    real *k = u + T * S, *dout = k + T * S, *rows = dout + N * C, *direct = rows + N * H;
    memcpy(h, h0, sizeof(real) * (size_t)S);
    if (cell == LSTM) memcpy(c, h0 + S, sizeof(real) * (size_t)S);
    for (long t = 0; t < T; ++t)
        for (long b = 0; b < B; ++b) {
            const real *xt = x + (t * B + b) * D, *ht = h + t * S + b * H;
            real *at = a + (t * B + b) * R, *vt = v + (t * B + b) * R, *ut = u + t * S + b * H;
            real *next = h + (t + 1) * S + b * H, reset[H];
            for (long i = 0; i < R; ++i)
                at[i] = join(bh[i], Wxh + i * D, xt, D,
                             G < 3 || G == 4 || i < 2 * H ? Whh + i * H : 0, ht, H);
            if (cell == RNN) {
                for (long i = 0; i < H; ++i) next[i] = f(relu, at[i]);
            } else if (cell == LSTM) {
                for (long i = 0; i < H; ++i) {
                    real old = c[t * S + b * H + i], now;
                    if (peep) at[i] += peep[i] * old, at[H + i] += peep[H + i] * old;
                    vt[i] = s(at[i]), vt[H + i] = s(at[H + i]), vt[2 * H + i] = f(relu, at[2 * H + i]);
                    now = c[(t + 1) * S + b * H + i] = vt[H + i] * old + vt[i] * vt[2 * H + i];
                    if (peep) at[3 * H + i] += peep[2 * H + i] * now;
                    vt[3 * H + i] = s(at[3 * H + i]);
                    next[i] = vt[3 * H + i] * (k[t * S + b * H + i] = f(relu, now));
                }
            } else {
                for (long i = 0; i < 2 * H; ++i) vt[i] = s(at[i]);
                for (long i = 0; i < H; ++i) reset[i] = vt[i] * ht[i];
                for (long i = 0; i < H; ++i) {
                    const real *row = Whh + (2 * H + i) * H;
                    if (cell == GRU) at[2 * H + i] += vt[i] * (ut[i] = dot(row, 1, ht, 1, H, bhn[i]));
                    else at[2 * H + i] = dot(row, 1, reset, 1, H, at[2 * H + i]), ut[i] = ht[i];
                    vt[2 * H + i] = f(relu, at[2 * H + i]);
                    next[i] = mix(vt[H + i], vt[2 * H + i], ht[i]);
                }
            }
        }
    *loss = 0;
    for (long n = 0; n < N; ++n) {
        long b = n % B, t = every ? n / B + 1 : step[b];
        real *row = rows + n * H, *o = out + n * C, *d = dout + n * C, top, total = 0, each = 0;
        memcpy(row, h + t * S + b * H, sizeof(real) * (size_t)H);
        for (long i = 0; i < C; ++i) o[i] = dot(Why + i * H, 1, row, 1, H, by[i]);
        top = o[0];
        for (long i = 1; i < C; ++i) top = o[i] > top ? o[i] : top;
        for (long i = 0; i < C; ++i) total += entropy ? exp(o[i] - top) : 0;
        if (entropy) each = log(total) - (o[label[n]] - top);
        for (long i = 0; i < C; ++i) {
            real off = entropy ? 0 : o[i] - target[n * C + i];
            d[i] = entropy ? exp(o[i] - top) / total - (i == label[n]) : 2 * off / C;
            each += off * off / C;
            d[i] = counted[n] ? d[i] / (real)divisor : 0;
        }
        if (counted[n]) *loss += each / (real)divisor;
        for (long i = 0; i < H; ++i) direct[t * S + b * H + i] += dot(Why + i, H, d, 1, C, 0);
    }
    for (long i = 0; i < C; ++i) {
        for (long j = 0; j < H; ++j) dWhy[i * H + j] = dot(dout + i, C, rows + j, H, N, 0);
        dby[i] = sum(dout + i, C, N);
    }
    for (long b = 0; b < B; ++b) {
        real e[H], q[H], w[H], old[H];
        for (long i = 0; i < H; ++i) e[i] = direct[T * S + b * H + i], q[i] = 0;
        for (long t = T; t-- > 0;) {
            long at0 = (t * B + b) * R, h1 = t * S + b * H;
            const real *at = a + at0, *vt = v + at0, *ht = h + h1;
            real *dat = da + at0, *r = rec + at0;
            for (long i = 0; i < H; ++i) {
                if (cell == RNN) {
                    dat[i] = slope(relu, at[i], ht[S + i]) * e[i];
                } else if (cell == LSTM) {
                    real in = vt[i], keep = vt[H + i], g = vt[2 * H + i], o = vt[3 * H + i];
                    real kt = k[h1 + i];
                    dat[3 * H + i] = triple(ds(o), kt, e[i]);
                    q[i] += triple(slope(relu, c[h1 + S + i], kt), o, e[i]);
                    if (peep) q[i] += peep[2 * H + i] * dat[3 * H + i];
                    dat[i] = triple(ds(in), g, q[i]);
                    dat[H + i] = triple(ds(keep), c[h1 + i], q[i]);
                    dat[2 * H + i] = triple(slope(relu, at[2 * H + i], g), in, q[i]);
                    q[i] *= keep;
                    if (peep) q[i] += peep[i] * dat[i] + peep[H + i] * dat[H + i];
                } else {
                    real z = vt[H + i], n = vt[2 * H + i];
                    dat[2 * H + i] = triple(slope(relu, at[2 * H + i], n), 1 - z, e[i]);
                    dat[H + i] = triple(ds(z), ht[i] - n, e[i]);
                }
            }
            if (cell == GRU || cell == BEFORE) {
                const real *dn = dat + 2 * H;
                for (long i = 0; i < H; ++i) {
                    w[i] = cell == GRU ? dn[i] : dot(Whh + 2 * H * H + i, H, dn, 1, H, 0);
                    dat[i] = triple(ds(vt[i]), u[h1 + i], w[i]);
                }
            }
            memcpy(r, dat, sizeof(real) * (size_t)R);
            if (cell == GRU) for (long i = 0; i < H; ++i) r[2 * H + i] *= vt[i];
            for (long i = 0; i < D; ++i) dx[(t * B + b) * D + i] = dot(Wxh + i, D, dat, 1, R, 0);
            memcpy(old, e, sizeof e);
            for (long i = 0; i < H; ++i) {
                real carry = 0;
                if (cell == GRU || cell == BEFORE) carry = vt[H + i] * old[i];
                if (cell == BEFORE) carry += vt[i] * w[i];
                e[i] = dot(Whh + i, H, r, 1, cell == BEFORE ? 2 * H : R, carry) + direct[h1 + i];
            }
        }
        for (long i = 0; i < H; ++i) {
            dh0[b * H + i] = e[i];
            if (cell == LSTM) dh0[S + b * H + i] = q[i];
        }
    }
    for (long i = 0; i < R; ++i) {
        int gated = cell == BEFORE && i >= 2 * H;
        for (long j = 0; j < H; ++j) {
            if (gated) /* the state that was reset, in u's place */
                for (long n = 0; n < T * B; ++n) u[n * H + j] = v[n * R + j] * h[n * H + j];
            dWhh[i * H + j] = over(rec + i, R, (gated ? u : h) + j, H, T, B);
        }
        for (long j = 0; j < D; ++j) dWxh[i * D + j] = over(da + i, R, x + j, D, T, B);
        dbh[i] = over(da + i, R, &one, 0, T, B);
    }
    if (cell == GRU) for (long i = 0; i < H; ++i) dbhn[i] = over(rec + 2 * H + i, R, &one, 0, T, B);
    if (peep)
        for (long i = 0; i < H; ++i) {
            dpeep[i] = over(da + i, R, c + i, H, T, B);
            dpeep[H + i] = over(da + H + i, R, c + i, H, T, B);
            dpeep[2 * H + i] = over(da + 3 * H + i, R, c + S + i, H, T, B);
        }
    free(a);
#if FLUSH
    _mm_setcsr(settings);
#endif
}
