#include "engine/scheduler.h"

#include <algorithm>
#include <limits>
#include <tuple>

namespace zinc {
namespace {

constexpr int kMostOvertaken = 16;  // then it is a client's turn, whatever it has had

}  // namespace

int Scheduler::Running::n_until_stop() const {
  const auto stop = std::ranges::upper_bound(stops, n_fed);
  return (stop == stops.end() ? n_prompt : std::min(*stop, n_prompt)) - n_fed;
}

// Whoever was away has saved nothing up: it starts level with the one that has had least.
void Scheduler::wait(RequestId id, const std::string& client) {
  double least = std::numeric_limits<double>::infinity();
  for (const auto& [name, known] : clients_) least = std::min(least, known.n_served);
  const auto [place, is_new] = clients_.try_emplace(client);
  if (is_new && least < std::numeric_limits<double>::infinity()) place->second.n_served = least;
  place->second.waiting.push_back(id);
}

// Whose client would then run fewest, the least served first: one that has nothing running waits for no more than the
// next to end, however many others have sent. But where ever new clients come that have nothing running, every second
// turn is in time that of the first request that each other one has waiting.
std::vector<RequestId> Scheduler::waiting_in_turn() const {
  std::vector<std::tuple<bool, size_t, double, RequestId>> order;
  for (const auto& [name, client] : clients_) {
    const size_t n_running = static_cast<size_t>(client.n_running);
    for (size_t i = 0; i < client.waiting.size(); ++i) {
      if (i == 0 && client.n_overtaken >= kMostOvertaken && !last_was_overtaken_) {
        order.emplace_back(false, 0, 0, client.waiting[i]);
      } else {
        order.emplace_back(true, n_running + i, client.n_served, client.waiting[i]);
      }
    }
  }
  std::ranges::sort(order);
  std::vector<RequestId> ids;
  for (const auto& entry : order) ids.push_back(std::get<3>(entry));
  return ids;
}

void Scheduler::admit(RequestId id, int n_prompt, int n_cached, std::vector<int> stops) {
  ZINC_CHECK(n_cached < n_prompt);
  for (auto& [name, client] : clients_) {
    const bool was_first = !client.waiting.empty() && client.waiting.front() == id;
    if (std::erase(client.waiting, id) == 0) continue;
    ++client.n_running;
    last_was_overtaken_ = was_first && client.n_overtaken >= kMostOvertaken;
    if (was_first) client.n_overtaken = 0;
    running_.push_back({id, name, n_prompt, n_cached, std::move(stops)});
    return count_overtaken(id);
  }
  ZINC_CHECK(false);
}

void Scheduler::count_overtaken(RequestId by) {
  for (auto& [name, client] : clients_) {
    if (!client.waiting.empty() && client.waiting.front() < by) ++client.n_overtaken;
  }
}

void Scheduler::forget_if_idle(const std::string& client) {
  const auto known = clients_.find(client);
  if (known->second.waiting.empty() && known->second.n_running == 0) clients_.erase(known);
}

void Scheduler::remove(RequestId id) {
  if (const auto found = std::ranges::find(running_, id, &Running::id); found != running_.end()) {
    const std::string client = std::move(found->client);
    running_.erase(found);
    --clients_.at(client).n_running;
    return forget_if_idle(client);
  }
  for (auto& [name, client] : clients_) {
    if (!client.waiting.empty() && client.waiting.front() == id) client.n_overtaken = 0;
    if (std::erase(client.waiting, id) > 0) return forget_if_idle(std::string(name));
  }
}

// Tokens for each reader: clients share equally, what one does not need goes to the others; within a client those
// admitted first are served first.
std::vector<int> Scheduler::share(std::span<Running* const> readers, int n_tokens) const {
  std::map<std::string_view, int> wanted;
  for (const Running* reader : readers) wanted[reader->client] += reader->n_until_stop();
  std::map<std::string_view, int> given;
  while (n_tokens > 0 && !wanted.empty()) {
    const int each = std::max(1, n_tokens / static_cast<int>(wanted.size()));
    for (auto it = wanted.begin(); it != wanted.end() && n_tokens > 0;) {
      const int n = std::min({each, it->second, n_tokens});
      given[it->first] += n;
      n_tokens -= n;
      it->second -= n;
      it = it->second == 0 ? wanted.erase(it) : std::next(it);
    }
  }
  std::vector<int> tokens;
  for (const Running* reader : readers) {
    int& left = given[reader->client];
    tokens.push_back(std::min(left, reader->n_until_stop()));
    left -= tokens.back();
  }
  return tokens;
}

std::span<const ScheduledRun> Scheduler::next() {
  step_.clear();
  std::vector<Running*> readers;
  int deepest = 0, longest = 0;
  for (Running& request : running_) {
    if (!request.reads_prompt()) {
      step_.push_back({request.id, request.n_fed, 1, true});
    } else {
      readers.push_back(&request);
      deepest = std::max(deepest, request.n_fed);
      longest = std::max(longest, request.n_prompt);
    }
  }
  const int n_decode = static_cast<int>(step_.size());
  const std::vector<int> tokens = share(readers, readers.empty() ? 0 : pacer_.allowance(n_decode, deepest, longest));
  for (size_t i = 0; i < readers.size(); ++i) {
    if (tokens[i] == 0) continue;
    step_.push_back(
        {readers[i]->id, readers[i]->n_fed, tokens[i], readers[i]->n_fed + tokens[i] == readers[i]->n_prompt});
  }
  return step_;
}

void Scheduler::finish(double seconds) {
  StepShape shape;
  for (const ScheduledRun& run : step_) {
    const auto request = std::ranges::find(running_, run.id, &Running::id);
    if (request == running_.end()) continue;
    if (request->reads_prompt()) {
      shape.n_prefill += run.n_tokens;
      shape.depth_sum += static_cast<double>(run.n_tokens) * (run.begin + run.n_tokens / 2.0);
      shape.read_depth += run.begin;
    } else {
      ++shape.n_decode;
    }
    request->n_fed += run.n_tokens;
    clients_.at(request->client).n_served += run.n_tokens;
  }
  pacer_.observe(shape, seconds);
}

int Scheduler::n_waiting() const {
  size_t n = 0;
  for (const auto& [name, client] : clients_) n += client.waiting.size();
  return static_cast<int>(n);
}

int Scheduler::n_prefilling() const {
  return static_cast<int>(std::ranges::count_if(running_, [](const Running& r) { return r.reads_prompt(); }));
}

}  // namespace zinc
