// The gated delta rule of one value head and 32 of its columns. Per head: S <- exp(a softplus(alpha + dt_bias)) S;
// d = sigmoid(beta) (v - S^T k);  S <- S + k d^T;  out = S^T (q * q_scale). Eight threads share a column of S, thread i has
// its rows i, i + 8, ...
layout(constant_id = 1) const int N = 16;  // rows of S a thread has: k_dim / 8

struct Delta {
  uint64_t q, k, v, alpha, beta, dt_bias, a, out_;
  uint64_t states, slot_bytes;  // of slot 0: [heads, k_dim, v_dim]
  int k_heads, v_heads, k_dim, v_dim, is_cyclic;
  float q_scale;
};

float S[N], keys[N], queries[N];

// What else a token brings.
struct Token {
  float v, alpha, beta;
};

int key_head(Delta d, int h) { return d.is_cyclic != 0 ? h % d.k_heads : h / (d.v_heads / d.k_heads); }
int part_id() { return thread_id() % 8; }
bool has_row(Delta d, int i) { return i * 8 + part_id() < d.k_dim; }

uint64_t delta_state(Delta d, int slot, int h) {
  return d.states + uint64_t(slot) * d.slot_bytes + uint64_t(h * d.k_dim * d.v_dim) * 4ul;
}
void load_state(Delta d, uint64_t state, int column, bool is_there) {
  [[unroll]] for (int i = 0; i < N; ++i) {
    S[i] = is_there && has_row(d, i) ? Floats(state).at[(i * 8 + part_id()) * d.v_dim + column] : 0.0;
  }
}
void store_state(Delta d, uint64_t state, int column, bool is_inside) {
  [[unroll]] for (int i = 0; i < N; ++i) {
    if (is_inside && has_row(d, i)) Floats(state).at[(i * 8 + part_id()) * d.v_dim + column] = S[i];
  }
}

// One token, with `keys` and `queries` set: what it gives. REQUIRES: every thread of the workgroup calls.
float take_token(Delta d, Token token, float dt_bias, float a) {
  precise float gate = token.alpha + dt_bias;
  precise float softplus = gate > 20.0 ? gate : gate < -15.0 ? exp(gate) : log(1.0 + exp(gate));
  precise float decay = exp(a * softplus);
  float beta = sigmoid(token.beta);
  precise float seen = 0;
  [[unroll]] for (int i = 0; i < N; ++i) {
    precise float decayed = S[i] * decay;
    S[i] = decayed;
    seen = fma(decayed, keys[i], seen);
  }
  precise float delta = beta * (token.v - lanes_sum(seen, 8));
  precise float result = 0;
  [[unroll]] for (int i = 0; i < N; ++i) {
    precise float next = fma(keys[i], delta, S[i]);
    S[i] = next;
    result = fma(next, queries[i], result);
  }
  precise float y = lanes_sum(result, 8) * d.q_scale;
  return y;
}
