#include "engine/scheduler.h"

#include <algorithm>
#include <limits>
#include <tuple>

namespace zinc {
namespace {

// Prompts up to this length go first if they fill a step of this many tokens: others would make all of them late. On
// an H200 an 8B model prefills them in 16 ms, at two thirds of its speed.
constexpr int kBriefPrompt = 256;
// Steps with more prompt tokens are followed by another one before their end only if that delays no request.
constexpr int kMaxPrefillBeforeAnother = 256;
constexpr double kMaxTwoPrefillStepsS = 0.1;  // the longest step with short prompts (ADR 0034)
constexpr int kMaxOvertaken = 16;  // after so many the client's oldest request goes first, whatever service it has had

}  // namespace

int Scheduler::Running::n_until_chunk_end() const {
  const auto stop = std::ranges::upper_bound(split.chunk_ends, n_fed);
  return (stop == split.chunk_ends.end() ? n_prompt : std::min(*stop, n_prompt)) - n_fed;
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

void Scheduler::admit(RequestId id, int n_prompt, int n_cached, PromptSplit split, PromptOutput output,
                      int max_length) {
  ZINC_CHECK(n_cached < n_prompt);
  for (auto& [name, client] : clients_) {
    const bool was_first = !client.waiting.empty() && client.waiting.front() == id;
    if (std::erase(client.waiting, id) == 0) continue;
    ++client.n_running;
    last_admitted_was_overtaken_ = was_first && client.n_overtaken >= kMaxOvertaken;
    if (was_first) client.n_overtaken = 0;
    running_.push_back({id, name, n_prompt, n_cached, n_cached, std::move(split), output, max_length});
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

// Prompt tokens for the chunks of one length: clients get equal parts, tokens that one does not need go to the others;
// within a client in order of admission. Returns how many were granted.
int Scheduler::split_among_clients(std::span<Chunk> chunks, PromptLength length, int n_tokens) {
  std::map<std::string_view, int> n_wanted;
  for (const Chunk& chunk : chunks) {
    if (chunk.length == length) n_wanted[chunk.request->client] += chunk.request->n_until_chunk_end();
  }
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
  int n_total = 0;
  for (Chunk& chunk : chunks) {
    if (chunk.length != length) continue;
    int& n_remaining = n_granted[chunk.request->client];
    chunk.n_tokens = std::min(n_remaining, chunk.request->n_until_chunk_end());
    n_remaining -= chunk.n_tokens;
    n_total += chunk.n_tokens;
  }
  return n_total;
}

// The prompts that may be in the next step. Brief ones go before longer ones, which are passed over once at most.
std::vector<Scheduler::Chunk> Scheduler::next_chunks() const {
  std::vector<Chunk> chunks;
  int n_brief = 0;
  for (const Running& request : running_) {
    if (!request.is_prefilling()) continue;
    chunks.push_back({&request, prefill_budget_.length_of(request.n_new())});
    if (request.n_new() <= kBriefPrompt) n_brief += request.n_until_chunk_end();
  }
  if (n_brief >= kBriefPrompt) {
    std::erase_if(chunks, [](const Chunk& chunk) {
      return chunk.request->n_new() > kBriefPrompt && chunk.length == PromptLength::short_prompt &&
             !chunk.request->was_passed_over;
    });
  }
  return chunks;
}

// Long prompts get their budget first, so that short ones do not starve them, and short prompts the rest of theirs,
// which is larger. Where it is not, long prompts leave half of it to short ones: without decode rows both have the
// whole step, and where steps of few prompt tokens are inefficient both have the smallest chunk.
void Scheduler::fill_chunks(std::span<Chunk> chunks, int n_decode) const {
  using enum PromptLength;
  int n_short_wanted = 0, deepest_short = 0, n_long_wanted = 0, deepest_long = 0;
  for (const Chunk& chunk : chunks) {
    const bool is_short = chunk.length == short_prompt;
    (is_short ? n_short_wanted : n_long_wanted) += chunk.request->n_until_chunk_end();
    int& deepest = is_short ? deepest_short : deepest_long;
    deepest = std::max(deepest, chunk.request->n_fed);
  }
  const int n_short =
      n_short_wanted > 0 ? prefill_budget_.next_prefill_tokens(n_decode, deepest_short, short_prompt) : 0;
  if (n_long_wanted == 0) {
    split_among_clients(chunks, short_prompt, n_short);
    return;
  }
  const int n_long = prefill_budget_.next_prefill_tokens(n_decode, deepest_long, long_prompt);
  if (n_long == 0) return;  // a decode-only step is to be measured
  const int n_left = n_short > n_long ? 0 : std::min((n_long + 1) / 2, n_short_wanted);
  const int n_granted = split_among_clients(chunks, long_prompt, n_long - n_left);
  split_among_clients(chunks, short_prompt, std::max(n_short, n_long) - n_granted);
}

// Every running request may have one output row; the remaining rows go to prompts whose tokens all have one.
void Scheduler::limit_outputs(std::span<Chunk> chunks) const {
  int n_free = limits_.max_outputs - n_running();
  for (Chunk& chunk : chunks) {
    if (chunk.request->output == PromptOutput::last_token || chunk.n_tokens == 0) continue;
    chunk.n_tokens = std::min(chunk.n_tokens, 1 + std::max(n_free, 0));
    n_free -= chunk.n_tokens - 1;
  }
}

int Scheduler::alignment_at(const Running& request, int position) const {
  if (position < request.split.aligned_end) return limits_.scan_chunk_tokens;
  return position < request.split.tail_end ? limits_.tail_chunk() : 1;
}

// Cuts chunks to whole scan chunks; what one does not use goes to the next ones. If none has a whole scan chunk, the
// client with the least service gets one: at most scan_chunk_tokens more than were granted.
void Scheduler::align_chunks(std::span<Chunk> chunks) const {
  int n_unused = 0, n_total = 0;
  for (Chunk& chunk : chunks) {
    const Running& request = *chunk.request;
    const int n_granted = chunk.n_tokens + n_unused;
    chunk.n_tokens = std::min(n_granted, request.n_until_chunk_end());
    const int end = request.n_fed + chunk.n_tokens;
    chunk.n_tokens -= end % alignment_at(request, end);
    n_unused = n_granted - chunk.n_tokens;
    n_total += chunk.n_tokens;
  }
  if (n_total > 0 || n_unused == 0) return;
  Chunk& next = *std::ranges::min_element(
      chunks, {}, [&](const Chunk& chunk) { return clients_.at(chunk.request->client).service; });
  const int n_least = std::max(alignment_at(*next.request, next.request->n_fed), limits_.tail_chunk());
  next.n_tokens = std::min(n_least, next.request->n_until_chunk_end());
}

std::span<const ScheduledSequence> Scheduler::schedule_step() {
  step_.clear();
  for (const Running& request : running_) {
    if (request.is_prefilling() || request.n_fed >= request.max_length) continue;  // its last token is in flight
    step_.push_back({request.id, request.n_fed, 1, true});
  }
  std::vector<Chunk> chunks = next_chunks();
  fill_chunks(chunks, static_cast<int>(step_.size()));
  if (limits_.scan_chunk_tokens > 1) align_chunks(chunks);
  limit_outputs(chunks);
  for (const auto& [request, length, n_tokens] : chunks) {
    if (n_tokens == 0) continue;
    step_.push_back({request->id, request->n_fed, n_tokens, request->n_fed + n_tokens == request->n_prompt});
  }
  return step_;
}

// A long prefill step may be followed by another one if no request decodes or waits, and one that arrives meanwhile
// either has to wait for a running one anyway or has not long to wait for both steps.
bool Scheduler::may_schedule_ahead() const {
  const StepLoad& load = in_flight_.back();
  if (load.n_prefill <= kMaxPrefillBeforeAnother) return true;
  if (load.n_decode > 0 || n_waiting() > 0) return false;
  const double two_steps_s = 2 * prefill_token_s_ * limits_.step_tokens;
  return is_full() || (two_steps_s > 0 && two_steps_s <= kMaxTwoPrefillStepsS);
}

std::span<const ScheduledSequence> Scheduler::schedule_ahead() {
  schedule_step();
  const auto is_prompt = [&](const ScheduledSequence& entry) {
    return entry.begin < std::ranges::find(running_, entry.id, &Running::id)->n_prompt;
  };
  if (n_prefilling() > 0 && std::ranges::none_of(step_, is_prompt)) step_.clear();
  return step_;
}

void Scheduler::add_draft(RequestId id, int n_tokens) {
  std::ranges::find(step_, id, &ScheduledSequence::id)->n_tokens += n_tokens;
}

void Scheduler::reject_draft(RequestId id, int n_tokens) {
  const auto request = std::ranges::find(running_, id, &Running::id);
  if (request != running_.end()) request->n_fed -= n_tokens;
}

void Scheduler::start_step() {
  StepLoad load;
  for (Running& request : running_) request.was_passed_over = request.is_prefilling();
  for (const ScheduledSequence& entry : step_) {
    Running& request = *std::ranges::find(running_, entry.id, &Running::id);
    if (request.is_prefilling()) {
      load.n_prefill += entry.n_tokens;
      load.depth_sum += static_cast<double>(entry.n_tokens) * (entry.begin + entry.n_tokens / 2.0);
      load.read_depth += entry.begin;
    } else {
      load.n_decode += entry.n_tokens;
    }
    request.n_fed += entry.n_tokens;
    request.was_passed_over = false;
    clients_.at(request.client).service += entry.n_tokens;
  }
  in_flight_.push_back(load);
}

void Scheduler::complete_step(double seconds) {
  const StepLoad& load = in_flight_.front();
  prefill_budget_.observe(load, seconds);
  if (load.n_prefill > kMaxPrefillBeforeAnother) prefill_token_s_ = seconds / load.n_prefill;
  in_flight_.pop_front();
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
