// Gated delta rule for one value head and 32 of its columns. Per head: S <- exp(a softplus(alpha + dt_bias)) S;
// d = sigmoid(beta) (v - S^T k);  S <- S + k d^T;  out = S^T (q * q_scale). Eight threads share a column of S; each has four
// of every 32 rows.
#include "backend/vulkan/params/recurrent.h"
layout(constant_id = kSpecDeltaStateRows) const int N = 16;  // rows of S per thread: k_dim / 8

const int kVec4s = N / 4, kPaddedKeyDim = 8 * N;
vec4 S[kVec4s], keys[kVec4s], queries[kVec4s];

// decay: factor of the old state; beta: factor of the update.
struct Gates {
  float decay, beta;
};

int key_head(DeltaParams d, int h) { return d.is_cyclic != 0 ? h % d.k_heads : h / (d.v_heads / d.k_heads); }
int lane_in_column() { return thread_id() % 8; }
int first_row(int i) { return i * 32 + lane_in_column() * 4; }  // of the thread's i-th vec4

uint64_t delta_state(DeltaParams d, int slot, int h) {
  return d.states + uint64_t(slot) * d.slot_bytes + uint64_t(h * d.k_dim * d.v_dim) * 4ul;
}
void load_state(DeltaParams d, uint64_t state, int column, bool is_valid) {
  [[unroll]] for (int i = 0; i < kVec4s; ++i) {
    [[unroll]] for (int c = 0; c < 4; ++c) {
      int row = first_row(i) + c;
      S[i][c] = is_valid && row < d.k_dim ? Floats(state).data[row * d.v_dim + column] : 0.0;
    }
  }
}
void store_state(DeltaParams d, uint64_t state, int column, bool is_in_bounds) {
  [[unroll]] for (int i = 0; i < kVec4s; ++i) {
    [[unroll]] for (int c = 0; c < 4; ++c) {
      int row = first_row(i) + c;
      if (is_in_bounds && row < d.k_dim) Floats(state).data[row * d.v_dim + column] = S[i][c];
    }
  }
}

float log_decay(float alpha, float dt_bias, float a) {
  precise float gate = alpha + dt_bias;
  precise float softplus = gate > 20.0 ? gate : gate < -15.0 ? exp(gate) : log(1.0 + exp(gate));
  precise float result = a * softplus;
  return result;
}
Gates gates_of(float alpha, float beta, float dt_bias, float a) {
  precise float decay = exp(log_decay(alpha, dt_bias, a));
  return Gates(decay, sigmoid(beta));
}

float column_sum(vec4 x) {
  precise float sum = (x.x + x.y) + (x.z + x.w);
  return clustered_sum(sum, 8);
}

// One token, with `keys` and `queries` set; returns the thread's partial output. REQUIRES: every thread of the workgroup calls.
vec4 delta_step(float v, Gates gates) {
  precise vec4 prediction = vec4(0);
  [[unroll]] for (int i = 0; i < kVec4s; ++i) {
    precise vec4 decayed = S[i] * gates.decay;
    S[i] = decayed;
    prediction = fma(decayed, keys[i], prediction);
  }
  precise float delta = gates.beta * (v - column_sum(prediction));
  precise vec4 result = vec4(0);
  [[unroll]] for (int i = 0; i < kVec4s; ++i) {
    precise vec4 next = fma(keys[i], vec4(delta), S[i]);
    S[i] = next;
    result = fma(next, queries[i], result);
  }
  return result;
}
// Reduces partial outputs. REQUIRES: every thread of the workgroup calls.
float sum_and_scale(DeltaParams d, vec4 result) {
  precise float y = column_sum(result) * d.q_scale;
  return y;
}
