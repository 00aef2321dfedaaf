#include "engine/scheduler.h"

#include <algorithm>
#include <limits>
#include <tuple>

namespace zinc {
namespace {

constexpr int kMaxOvertaken = 16;  // after so many the client's oldest request goes first, whatever service it has had

}  // namespace

int Scheduler::Running::n_until_chunk_end() const {
  const auto stop = std::ranges::upper_bound(chunk_ends, n_fed);
  return (stop == chunk_ends.end() ? n_prompt : std::min(*stop, n_prompt)) - n_fed;
}

// A client that was idle gets no credit for it: it starts with the least service of all clients.
void Scheduler::enqueue(RequestId id, const std::string& client) {
  double min_service = std::numeric_limits<double>::infinity();
  for (const auto& [name, other] : clients_) min_service = std::min(min_service, other.service);
  const auto [entry, is_new] = clients_.try_emplace(client);
  if (is_new && min_service < std::numeric_limits<double>::infinity()) entry->second.service = min_service;
  entry->second.waiting.push_back(id);
}

// Fewest running requests of the client first, then least service: a client with nothing running waits at most for the
// next request to end, however many requests others have sent. If new clients keep arriving, requests overtaken
// kMaxOvertaken times are admitted in at most every second turn, so that they do not starve and newcomers do not
// either.
std::vector<RequestId> Scheduler::admission_order() const {
  std::vector<std::tuple<bool, size_t, double, RequestId>> order;
  for (const auto& [name, client] : clients_) {
    const size_t n_running = static_cast<size_t>(client.n_running);
    for (size_t i = 0; i < client.waiting.size(); ++i) {
      if (i == 0 && client.n_overtaken >= kMaxOvertaken && !last_admitted_was_overtaken_) {
        order.emplace_back(false, 0, 0, client.waiting[i]);
      } else {
        order.emplace_back(true, n_running + i, client.service, client.waiting[i]);
      }
    }
  }
  std::ranges::sort(order);
  std::vector<RequestId> ids;
  for (const auto& entry : order) ids.push_back(std::get<3>(entry));
  return ids;
}

void Scheduler::admit(RequestId id, int n_prompt, int n_cached, std::vector<int> chunk_ends, PromptOutput output) {
  ZINC_CHECK(n_cached < n_prompt);
  for (auto& [name, client] : clients_) {
    const bool was_first = !client.waiting.empty() && client.waiting.front() == id;
    if (std::erase(client.waiting, id) == 0) continue;
    ++client.n_running;
    last_admitted_was_overtaken_ = was_first && client.n_overtaken >= kMaxOvertaken;
    if (was_first) client.n_overtaken = 0;
    running_.push_back({id, name, n_prompt, n_cached, std::move(chunk_ends), output});
    return update_overtaken(id);
  }
  ZINC_CHECK(false);
}

void Scheduler::update_overtaken(RequestId by) {
  for (auto& [name, client] : clients_) {
    if (!client.waiting.empty() && client.waiting.front() < by) ++client.n_overtaken;
  }
}

void Scheduler::erase_if_idle(const std::string& client) {
  const auto known = clients_.find(client);
  if (known->second.waiting.empty() && known->second.n_running == 0) clients_.erase(known);
}

// n_overtaken stays as it is: to be preempted is not to be overtaken.
RequestId Scheduler::preempt_youngest() {
  ZINC_CHECK(n_running() > 1);
  const RequestId id = running_.back().id;
  Client& client = clients_.at(running_.back().client);
  running_.pop_back();
  --client.n_running;
  client.waiting.insert(std::ranges::lower_bound(client.waiting, id), id);
  return id;
}

void Scheduler::remove(RequestId id) {
  if (const auto found = std::ranges::find(running_, id, &Running::id); found != running_.end()) {
    const std::string client = std::move(found->client);
    running_.erase(found);
    --clients_.at(client).n_running;
    return erase_if_idle(client);
  }
  for (auto& [name, client] : clients_) {
    if (!client.waiting.empty() && client.waiting.front() == id) client.n_overtaken = 0;
    if (std::erase(client.waiting, id) > 0) return erase_if_idle(std::string(name));
  }
}

// Prompt tokens for each prefilling request: clients get equal parts, tokens that one does not need go to the others;
// within a client in order of admission.
std::vector<int> Scheduler::split_among_clients(std::span<Running* const> prefilling, int n_tokens) const {
  std::map<std::string_view, int> n_wanted;
  for (const Running* request : prefilling) n_wanted[request->client] += request->n_until_chunk_end();
  std::map<std::string_view, int> n_granted;
  while (n_tokens > 0 && !n_wanted.empty()) {
    const int n_per_client = std::max(1, n_tokens / static_cast<int>(n_wanted.size()));
    for (auto it = n_wanted.begin(); it != n_wanted.end() && n_tokens > 0;) {
      const int n = std::min({n_per_client, it->second, n_tokens});
      n_granted[it->first] += n;
      n_tokens -= n;
      it->second -= n;
      it = it->second == 0 ? n_wanted.erase(it) : std::next(it);
    }
  }
  std::vector<int> tokens;
  for (const Running* request : prefilling) {
    int& n_remaining = n_granted[request->client];
    tokens.push_back(std::min(n_remaining, request->n_until_chunk_end()));
    n_remaining -= tokens.back();
  }
  return tokens;
}

// Every running request may have one output row; the remaining rows go to prompts whose tokens all have one.
void Scheduler::limit_outputs(std::span<Running* const> prefilling, std::vector<int>& tokens) const {
  int n_free = limits_.max_outputs - n_running();
  for (size_t i = 0; i < prefilling.size(); ++i) {
    if (prefilling[i]->output == PromptOutput::last_token || tokens[i] == 0) continue;
    tokens[i] = std::min(tokens[i], 1 + std::max(n_free, 0));
    n_free -= tokens[i] - 1;
  }
}

std::span<const ScheduledSequence> Scheduler::schedule_step() {
  step_.clear();
  std::vector<Running*> prefilling;
  int deepest = 0, longest = 0;
  for (Running& request : running_) {
    if (!request.is_prefilling()) {
      step_.push_back({request.id, request.n_fed, 1, true});
    } else {
      prefilling.push_back(&request);
      deepest = std::max(deepest, request.n_fed);
      longest = std::max(longest, request.n_prompt);
    }
  }
  const int n_decode = static_cast<int>(step_.size());
  std::vector<int> tokens = split_among_clients(
      prefilling, prefilling.empty() ? 0 : prefill_budget_.next_prefill_tokens(n_decode, deepest, longest));
  limit_outputs(prefilling, tokens);
  for (size_t i = 0; i < prefilling.size(); ++i) {
    if (tokens[i] == 0) continue;
    step_.push_back({prefilling[i]->id, prefilling[i]->n_fed, tokens[i],
                     prefilling[i]->n_fed + tokens[i] == prefilling[i]->n_prompt});
  }
  return step_;
}

void Scheduler::complete_step(double seconds) {
  StepLoad load;
  for (const ScheduledSequence& entry : step_) {
    const auto request = std::ranges::find(running_, entry.id, &Running::id);
    if (request == running_.end()) continue;
    if (request->is_prefilling()) {
      load.n_prefill += entry.n_tokens;
      load.depth_sum += static_cast<double>(entry.n_tokens) * (entry.begin + entry.n_tokens / 2.0);
      load.read_depth += entry.begin;
    } else {
      ++load.n_decode;
    }
    request->n_fed += entry.n_tokens;
    clients_.at(request->client).service += entry.n_tokens;
  }
  prefill_budget_.observe(load, seconds);
}

int Scheduler::n_waiting() const {
  size_t n = 0;
  for (const auto& [name, client] : clients_) n += client.waiting.size();
  return static_cast<int>(n);
}

int Scheduler::n_prefilling() const {
  return static_cast<int>(std::ranges::count_if(running_, [](const Running& r) { return r.is_prefilling(); }));
}

}  // namespace zinc
