// Which experts a token uses, from its logits: the same wherever it is done. The best of each 32 experts first, then the
// best of those; the lower number among equals. What is no number counts as the lowest.
layout(constant_id = 7) const int kRouteRoom = 1;  // experts there is room for, a multiple of 32; 1: none are looked for
const int kMaxUsed = 64;

struct Route {
  uint64_t logits, ids, weights;
  int n_experts, n_used, mode;  // 0 softmax, 1 normalised, 2 of the chosen
  float scale;
};

shared float route_logits[kRouteRoom];
shared float route_best[kRouteRoom];  // of each 32 the n_used best, in order
shared int route_places[kRouteRoom];
shared int chosen_ids[kMaxUsed];
shared float chosen_logits[kMaxUsed];

// How many of an expert's 32 come before it.
int rank_in_32(float logit, int place) {
  int rank = 0;
  [[unroll]] for (int j = 0; j < 32; ++j) {
    float other = route_logits[(place & ~31) + j];
    if (other > logit || (other == logit && j < (place & 31))) ++rank;
  }
  return rank;
}

// Into chosen_ids and chosen_logits. REQUIRES: every thread of the workgroup calls; n_used <= kMaxUsed.
void choose_experts(Route route, int t) {
  int n_places = padded(route.n_experts), best = min(route.n_used, 32), n_best = n_places / 32 * best;
  for (int e = thread_id(); e < n_places; e += kThreads) {
    float logit = e < route.n_experts ? PassedFloats(route.logits).at[t * route.n_experts + e] : kLowest;
    route_logits[e] = isnan(logit) ? kLowest : logit;
  }
  if (thread_id() < route.n_used) {  // more used than there are
    chosen_ids[thread_id()] = 0;
    chosen_logits[thread_id()] = kLowest;
  }
  barrier();
  for (int e = thread_id(); e < n_places; e += kThreads) {
    float logit = route_logits[e];
    int rank = rank_in_32(logit, e);
    if (rank >= best) continue;
    route_best[e / 32 * best + rank] = logit;
    route_places[e / 32 * best + rank] = e;
  }
  barrier();
  for (int first = 0; first < n_best; first += kThreads / 4) {  // four threads each
    int i = min(first + thread_id() / 4, n_best - 1), rank = 0;
    float logit = route_best[i];
    int place = route_places[i];
    for (int j = thread_id() % 4; j < n_best; j += 4) {
      float other = route_best[j];
      if (other > logit || (other == logit && route_places[j] < place)) ++rank;
    }
    rank = lanes_sum_int(rank, 4);
    if (thread_id() % 4 != 0 || rank >= route.n_used || place >= route.n_experts) continue;
    chosen_ids[rank] = place;
    chosen_logits[rank] = logit;
  }
  barrier();
}

// What choose_experts() left, written with the weights, or only worked out (chain.glsl). REQUIRES: every thread of the workgroup
// calls.
void write_route(Route route, int t, bool writes) {
  float largest = chosen_logits[0], total = 1;
  if (route.mode < 2) {
    float sum = 0;
    for (int e = thread_id(); e < route.n_experts; e += kThreads) sum += exp(route_logits[e] - largest);
    total = block_sum(sum);
  }
  if (thread_id() >= route.n_used) return;
  float own = 0;
  precise float sum = 0;
  for (int u = 0; u < route.n_used; ++u) {
    precise float share = exp(chosen_logits[u] - largest) / total;
    sum = sum + share;
    if (u == thread_id()) own = share;
  }
  precise float weight = (route.mode == 0 ? own : own / sum) * route.scale;
  if (!writes) return;
  PassedInts(route.ids).at[t * route.n_used + thread_id()] = chosen_ids[thread_id()];
  PassedFloats(route.weights).at[t * route.n_used + thread_id()] = weight;
}
