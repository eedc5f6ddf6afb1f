/* A correct simple net (tanh, read out at the last step, mean cross-entropy) that sums in the
   order it is asked for: -DREAL=float or double. */
#include <math.h>
#include <stdlib.h>
#ifdef __SSE2__
#include <xmmintrin.h>
#endif
#ifndef REAL
#define REAL float
#endif
typedef REAL real;

/* subnormal numbers are zero from now on (1) or not (0); returns whether that is possible */
int flush(int on) {
#ifdef __SSE2__
  _mm_setcsr(on ? _mm_getcsr() | 0x8040 : _mm_getcsr() & ~0x8040u);
  return 1;
#else
  return 0 * on;
#endif
}

static real fused(real a, real b, real c) {
  return sizeof(real) == 4 ? (real)fmaf(a, b, c) : (real)fma(a, b, c);
}

/* start + sum over k < K of a[k s] b[k r] */
static real dot(int order, real start, const real *a, long s, const real *b, long r, long K) {
  real sum = start, own = 0;
  switch (order) {
  case 0: /* from the first term, the accumulator begins at the start */
    for (long k = 0; k < K; ++k) sum += a[k * s] * b[k * r];
    return sum;
  case 1: /* from the last term */
    for (long k = K; k-- > 0;) sum += a[k * s] * b[k * r];
    return sum;
  case 2: /* the start is added last */
    for (long k = 0; k < K; ++k) own += a[k * s] * b[k * r];
    return own + start;
  case 3: { /* eight lanes, as vector registers have */
    real lane[8] = {0};
    for (long k = 0; k < K; ++k) lane[k % 8] += a[k * s] * b[k * r];
    for (int j = 0; j < 8; ++j) own += lane[j];
    return own + start;
  }
  case 4: /* blocks of 64, each added to the accumulator */
    for (long first = 0; first < K; first += 64) {
      own = 0;
      for (long k = first; k < K && k < first + 64; ++k) own += a[k * s] * b[k * r];
      sum += own;
    }
    return sum;
  case 5: { /* pairwise */
    long half = K / 2;
    if (K <= 4) return start + dot(0, 0, a, s, b, r, K);
    return start + (dot(5, 0, a, s, b, r, half)
                    + dot(5, 0, a + half * s, s, b + half * r, r, K - half));
  }
  case 6: /* compensated */
    for (long k = 0; k < K; ++k) {
      real term = a[k * s] * b[k * r] - own, next = sum + term;
      own = (next - sum) - term;
      sum = next;
    }
    return sum;
  case 7: /* fused multiply and add */
    for (long k = 0; k < K; ++k) sum = fused(a[k * s], b[k * r], sum);
    return sum;
  case 8: /* even terms, then odd ones */
    for (int odd = 0; odd < 2; ++odd)
      for (long k = odd; k < K; k += 2) sum += a[k * s] * b[k * r];
    return sum;
  default: { /* in double */
    double wide = start;
    for (long k = 0; k < K; ++k) wide += (double)a[k * s] * b[k * r];
    return (real)wide;
  }
  }
}

/* join: 0 one accumulator from the bias over the inputs to the states; 1 states, inputs, bias;
   2 inputs, bias, states; 3 from the bias over the states to the inputs; 4 two products, then
   their sum. steps: 0 one sum over time and batch; 1 onto the gradient from the last step to the
   first; 2 from the first to the last; 3 a sum a step, added to the gradient. */
void run(int order, int join, int steps, long T, long B, long D, long H, long C, const real *Whh,
         const real *Wxh, const real *bh, const real *Why, const real *by, const real *x,
         const long *y, real *loss, real *outputs, real *h, real *dWhh, real *dWxh, real *dbh,
         real *dWhy, real *dby, real *dx, real *dh0) {
  real *da = malloc(sizeof(real) * T * B * H), *e = dh0, one = 1, total = 0;
  real *dv = malloc(sizeof(real) * B * C);
  for (long n = 0; n < B * H; ++n) h[n] = 0;
  for (long t = 0; t < T; ++t)
    for (long b = 0; b < B; ++b)
      for (long i = 0; i < H; ++i) {
        const real *X = Wxh + i * D, *W = Whh + i * H, *xt = x + (t * B + b) * D,
                   *ht = h + (t * B + b) * H;
        real a;
        if (join == 0) a = dot(order, dot(order, bh[i], X, 1, xt, 1, D), W, 1, ht, 1, H);
        else if (join == 1) a = dot(order, dot(order, 0, W, 1, ht, 1, H), X, 1, xt, 1, D) + bh[i];
        else if (join == 2) a = dot(order, dot(order, 0, X, 1, xt, 1, D) + bh[i], W, 1, ht, 1, H);
        else if (join == 3) a = dot(order, dot(order, bh[i], W, 1, ht, 1, H), X, 1, xt, 1, D);
        else a = dot(order, 0, X, 1, xt, 1, D) + (dot(order, 0, W, 1, ht, 1, H) + bh[i]);
        h[((t + 1) * B + b) * H + i] = sizeof(real) == 4 ? (real)tanhf(a) : (real)tanh(a);
      }
  const real *last = h + T * B * H;
  for (long b = 0; b < B; ++b) {
    real *v = outputs + b * C, top = -INFINITY, sum = 0;
    for (long c = 0; c < C; ++c) {
      const real *row = Why + c * H;
      v[c] = join == 1 ? dot(order, 0, row, 1, last + b * H, 1, H) + by[c]
                       : dot(order, by[c], row, 1, last + b * H, 1, H);
      if (v[c] > top) top = v[c];
    }
    for (long c = 0; c < C; ++c) sum += dv[b * C + c] = exp(v[c] - top);
    total += (real)log(sum) + (top - v[y[b]]);
    for (long c = 0; c < C; ++c) dv[b * C + c] = (dv[b * C + c] / sum - (c == y[b])) / B;
  }
  *loss = total / B;
  for (long c = 0; c < C; ++c) {
    for (long j = 0; j < H; ++j) dWhy[c * H + j] = dot(order, 0, dv + c, C, last + j, H, B);
    dby[c] = dot(order, 0, dv + c, C, &one, 0, B);
  }
  for (long b = 0; b < B; ++b)
    for (long j = 0; j < H; ++j) e[b * H + j] = dot(order, 0, dv + b * C, 1, Why + j, H, C);
  for (long t = T; t-- > 0;)
    for (long b = 0; b < B; ++b) {
      real *d = da + (t * B + b) * H, *after = h + ((t + 1) * B + b) * H;
      for (long i = 0; i < H; ++i) d[i] = (1 - after[i] * after[i]) * e[b * H + i];
      for (long j = 0; j < H; ++j) e[b * H + j] = dot(order, 0, d, 1, Whh + j, H, H);
      for (long j = 0; j < D; ++j) dx[(t * B + b) * D + j] = dot(order, 0, d, 1, Wxh + j, D, H);
    }
  for (long i = 0; i < H; ++i)
    for (long j = 0; j < H + D + 1; ++j) {
      /* the gradient of Whh[i, j], then of Wxh[i, j - H], then of bh[i] */
      real *g = j < H ? dWhh + i * H + j : j < H + D ? dWxh + i * D + j - H : dbh + i;
      const real *seen = j < H ? h + j : j < H + D ? x + j - H : &one;
      long r = j < H ? H : j < H + D ? D : 0;
      *g = steps == 0 ? dot(order, 0, da + i, H, seen, r, T * B) : 0;
      for (long n = 0; steps > 0 && n < T; ++n) {
        long t = steps == 2 ? n : T - 1 - n;
        const real *d = da + t * B * H + i, *s = seen + t * B * r;
        *g = steps == 3 ? *g + dot(order, 0, d, H, s, r, B) : dot(order, *g, d, H, s, r, B);
      }
    }
  free(da);
  free(dv);
}
