#include "engine/prediction_file.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/check.h"

namespace zinc {
namespace {

constexpr char kMagic[8] = {'z', 'i', 'n', 'c', 'l', 'o', 'g', '1'};
constexpr double kMaxDrop = 60;
constexpr double kMaxQuant = 65535;

struct Header {
  char magic[8];
  int32_t n_vocab, window, n_windows, reserved;
};

struct RowHeader {
  float lowest, step;  // log-probability = lowest + step * quant
  TokenId top;
  float target_log_prob;
};

size_t bytes_of_row(int n_vocab) { return sizeof(RowHeader) + static_cast<size_t>(n_vocab) * sizeof(uint16_t); }
size_t bytes_of_tokens(int window, int n_windows) {
  return static_cast<size_t>(window) * static_cast<size_t>(n_windows) * sizeof(TokenId);
}

template <class T>
std::span<const std::byte> bytes_of(const T& record) {
  return std::as_bytes(std::span(&record, 1));
}

}  // namespace

double log_sum_exp(std::span<const float> values) {
  const double largest = *std::ranges::max_element(values);
  double total = 0;
  for (const float x : values) total += std::exp(x - largest);
  return largest + std::log(total);
}

Result<PredictionWriter> PredictionWriter::create(const std::filesystem::path& path, int n_vocab, int window,
                                                  std::span<const TokenId> tokens) {
  ZINC_TRY(file, AtomicFile::create(path));
  Header header{.magic = {}, .n_vocab = n_vocab, .window = window, .n_windows = 0, .reserved = 0};
  std::memcpy(header.magic, kMagic, sizeof kMagic);
  header.n_windows = static_cast<int32_t>(tokens.size()) / window;
  if (Status written = file.write(bytes_of(header)); !written.ok()) return written.error();
  if (Status written = file.write(std::as_bytes(tokens)); !written.ok()) return written.error();
  return PredictionWriter(std::move(file), n_vocab);
}

Status PredictionWriter::add(std::span<const float> logits, double log_sum, TokenId target) {
  ZINC_CHECK(logits.size() == quants_.size());
  const auto [smallest, largest] = std::ranges::minmax_element(logits);
  const double top = *largest - log_sum, lowest = std::max(*smallest - log_sum, top - kMaxDrop);
  const RowHeader row{.lowest = static_cast<float>(lowest),
                      .step = static_cast<float>((top - lowest) / kMaxQuant),
                      .top = static_cast<TokenId>(std::ranges::max_element(logits) - logits.begin()),
                      .target_log_prob = static_cast<float>(logits[static_cast<size_t>(target)] - log_sum)};
  const double per_step = row.step > 0 ? 1.0 / row.step : 0;
  for (size_t i = 0; i < logits.size(); ++i) {
    const double quant = std::clamp((logits[i] - log_sum - lowest) * per_step, 0.0, kMaxQuant);
    quants_[i] = static_cast<uint16_t>(std::lround(quant));
  }
  if (Status written = file_.write(bytes_of(row)); !written.ok()) return written;
  return file_.write(std::as_bytes(std::span(quants_)));
}

Result<PredictionFile> PredictionFile::open(const std::filesystem::path& path) {
  ZINC_TRY(file, MappedFile::open(path));
  const std::span<const std::byte> bytes = file.bytes();
  Header header{};
  const bool has_header = bytes.size() >= sizeof header;
  if (has_header) std::memcpy(&header, bytes.data(), sizeof header);
  constexpr int kMaxCount = 1 << 24;  // keeps the size computed below within 64 bits
  const auto is_sane = [](int32_t n) { return n > 0 && n <= kMaxCount; };
  if (!has_header || std::memcmp(header.magic, kMagic, sizeof kMagic) != 0 || !is_sane(header.n_vocab) ||
      !is_sane(header.window) || !is_sane(header.n_windows) || scored_tokens(header.window) < 1) {
    return fail(ErrorCode::invalid_input, "{}: not a baseline file; create one with zinc perplexity --save-baseline",
                path.string());
  }
  const double n_rows = static_cast<double>(header.n_windows) * scored_tokens(header.window);
  const double expected = static_cast<double>(sizeof header + bytes_of_tokens(header.window, header.n_windows)) +
                          n_rows * static_cast<double>(bytes_of_row(header.n_vocab));
  if (static_cast<double>(bytes.size()) != expected) {
    return fail(ErrorCode::invalid_input,
                "{}: the file has {} bytes, expected {:.0f} for {} windows of {} tokens; the file is truncated",
                path.string(), bytes.size(), expected, header.n_windows, header.window);
  }
  PredictionFile predictions(std::move(file));
  predictions.n_vocab_ = header.n_vocab;
  predictions.window_ = header.window;
  predictions.n_windows_ = header.n_windows;
  return predictions;
}

std::vector<TokenId> PredictionFile::tokens() const {
  std::vector<TokenId> tokens(static_cast<size_t>(window_) * static_cast<size_t>(n_windows_));
  std::memcpy(tokens.data(), file_.bytes().data() + sizeof(Header), tokens.size() * sizeof(TokenId));
  return tokens;
}

void PredictionFile::read(size_t index, Prediction& out) const {
  const size_t n = static_cast<size_t>(n_vocab_);
  const std::byte* at = file_.bytes().data() + sizeof(Header) + bytes_of_tokens(window_, n_windows_);
  at += index * bytes_of_row(n_vocab_);
  RowHeader row;
  std::memcpy(&row, at, sizeof row);
  out.top = row.top;
  out.target_log_prob = row.target_log_prob;
  out.log_probs.resize(n);
  double total = 0;
  for (size_t i = 0; i < n; ++i) {
    uint16_t quant;
    std::memcpy(&quant, at + sizeof row + i * sizeof quant, sizeof quant);
    out.log_probs[i] = static_cast<double>(row.lowest) + static_cast<double>(row.step) * quant;
    total += std::exp(out.log_probs[i]);
  }
  const double log_total = std::log(total);
  for (double& x : out.log_probs) x -= log_total;
}

}  // namespace zinc
