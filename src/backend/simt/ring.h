// Weights on their way through shared memory: each warp has a ring of its own that bulk copies fill, ahead of their
// use.
#pragma once

#include "backend/simt/panel.h"

namespace zinc::simt {

// The segments of one warp, in the order it takes them: of its panels one after the other, term by term. A term is one
// matrix of those an output is made of.
struct Units {
  const u8* weights;   // of the first term
  const u8* last;      // of the last one, if it is apart (the gate's other matrix, the shared expert's)
  const int* experts;  // which matrix of the stack each term is; null: the first
  long long panel_bytes, matrix_bytes;
  int segment_bytes, last_bytes, n_segments, n_terms;
  int panel, end, panel_step;
  int unit, first, step;

  ZINC_DEVICE bool is_done() const { return panel >= end; }
  ZINC_DEVICE int n_units() const { return n_terms * n_segments; }
  ZINC_DEVICE int term() const {
    int t = 0;
    for (int u = unit; u >= n_segments; u -= n_segments) ++t;
    return t;
  }
  ZINC_DEVICE const u8* at(int term) const {
    const u8* base = last && term == n_terms - 1 ? last : weights + (experts ? experts[term] : 0) * matrix_bytes;
    return base + panel * panel_bytes + static_cast<long long>(unit - term * n_segments) * segment_bytes;
  }
  ZINC_DEVICE int bytes(int term) const {
    return unit - term * n_segments + 1 < n_segments ? segment_bytes : last_bytes;
  }
  ZINC_DEVICE void advance() {
    unit += step;
    if (unit < n_units()) return;
    unit = first;
    panel += panel_step;
  }
};

// Lane 0 begins the copies, all lanes wait for them.
struct Ring {
  u8* slots;
  Gate* gates;
  int stage_bytes, n_stages;
  int slot = 0, parity = 0;

  ZINC_DEVICE void open() const {
    if (lane_id() == 0) {
      for (int i = 0; i < n_stages; ++i) open_gate(gates + i);
      end_opening();
    }
    __syncwarp();
  }
  ZINC_DEVICE void begin(Units& units, int to) const {
    if (units.is_done()) return;
    if (lane_id() == 0) {
      const int term = units.term();
      copy_bulk(slots + to * stage_bytes, units.at(term), units.bytes(term), gates + to);
    }
    units.advance();
  }
  ZINC_DEVICE void fill(Units& units) const {
    for (int i = 0; i < n_stages; ++i) begin(units, i);
  }
  ZINC_DEVICE const u8* take() const {
    wait_at(gates + slot, parity);
    return slots + slot * stage_bytes;
  }
  // The slot taken last is free again.
  ZINC_DEVICE void give_back(Units& units) {
    __syncwarp();
    begin(units, slot);
    if (++slot < n_stages) return;
    slot = 0;
    parity ^= 1;
  }
};

}  // namespace zinc::simt
