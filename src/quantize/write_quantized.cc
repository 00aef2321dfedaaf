#include "quantize/write_quantized.h"

#include <algorithm>
#include <cmath>

#include "base/sanitize_for_terminal.h"

namespace zinc {
namespace {

namespace fs = std::filesystem;

constexpr float kMaxHalf = 65504;  // the scales of blocks are f16

class QuantizedWriter {
 public:
  QuantizedWriter(const GgufFile& file, const QuantizePlan& plan, const ImportanceMatrix* importance,
                  const WriteCallbacks& callbacks, int n_threads)
      : file_(file), importance_(importance), rows_(callbacks, plan.file_bytes(), n_threads) {}

  Status write(GgufFileWriter& out, const PlannedTensor& tensor) {
    if (!tensor.quantizer) {
      return rows_.copy(out, tensor.source->view.bytes,
                        [&](std::span<const std::byte> part) { file_.release_pages(part); });
    }
    read_importance(tensor);
    const TensorView& view = tensor.source->view;
    const auto n_columns = static_cast<size_t>(view.shape.inner());
    const size_t n_row_bytes = row_bytes(*view.format, n_columns);
    const auto source_rows = [&](int64_t first, int64_t n) {
      return view.bytes.subspan(static_cast<size_t>(first) * n_row_bytes, static_cast<size_t>(n) * n_row_bytes);
    };
    const int64_t n_rows = view.shape.elems() / view.shape.inner();
    const int64_t n_mat = importance_row(*tensor.source, 0).n_mat;
    const auto encode = [&](int64_t row, std::vector<float>& values, std::span<std::byte> blocks) -> Status {
      values.resize(n_columns);
      view.format->dequantize(source_rows(row, 1), values);
      if (Status checked = check_values(tensor, row, values); !checked.ok()) return checked;
      tensor.quantizer->quantize(values, importance_rows_[static_cast<size_t>(row / (n_rows / n_mat))], blocks);
      return ok_status();
    };
    return rows_.write(out, {.n_rows = n_rows,
                             .row_elems = view.shape.inner(),
                             .n_row_bytes = row_bytes(*tensor.format, n_columns),
                             .encode = encode,
                             .written = [&](int64_t first, int64_t n) { file_.release_pages(source_rows(first, n)); }});
  }

 private:
  // Empty where the matrix has no entry of the tensor's size: plan_quantization() has checked that the format needs
  // none.
  void read_importance(const PlannedTensor& tensor) {
    const int64_t n_mat = importance_row(*tensor.source, 0).n_mat;
    importance_rows_.assign(static_cast<size_t>(n_mat), {});
    for (int64_t mat = 0; importance_ && mat < n_mat; ++mat) {
      Result<std::vector<float>> row = importance_of(*importance_, importance_row(*tensor.source, mat));
      if (!row.ok()) break;
      importance_rows_[static_cast<size_t>(mat)] = std::move(row.value());
    }
  }

  Status check_values(const PlannedTensor& tensor, int64_t row, std::span<const float> values) const {
    const auto bad = [&](const char* what) {
      return fail(ErrorCode::invalid_input, "{}: row {} of tensor '{}' has {}", file_.name(), row,
                  sanitize_for_terminal(tensor.source->name), what);
    };
    if (!std::ranges::all_of(values, [](float x) { return std::isfinite(x); })) {
      return bad("a weight that is infinite or not a number: the file is damaged, or its original is");
    }
    const bool has_wide_range = tensor.format->name == "f32" || tensor.format->name == "bf16";
    if (has_wide_range || std::ranges::all_of(values, [](float x) { return std::abs(x) <= kMaxHalf; })) {
      return ok_status();
    }
    return bad("a weight beyond 65504, the largest of f16: only f32 and bf16 can store it (--tensor 'REGEX=bf16')");
  }

  const GgufFile& file_;
  const ImportanceMatrix* importance_;
  RowWriter rows_;
  std::vector<std::vector<float>> importance_rows_;  // by matrix of the current tensor
};

// The first shard, which is the one that users open, last.
Status commit_all(std::vector<GgufFileWriter>& files, std::span<const fs::path> paths) {
  for (size_t i = files.size(); i-- > 0;) {
    const Status committed = files[i].commit();
    if (committed.ok()) continue;
    std::error_code ignored;
    for (size_t done = i + 1; done < files.size(); ++done) fs::remove(paths[done], ignored);
    return committed;
  }
  return ok_status();
}

}  // namespace

Status write_quantized(const GgufFile& file, const QuantizePlan& plan, const ImportanceMatrix* importance,
                       std::span<const fs::path> paths, const WriteCallbacks& callbacks, int n_threads) {
  ZINC_CHECK(paths.size() == plan.headers.size());
  std::vector<GgufFileWriter> files;
  for (size_t i = 0; i < paths.size(); ++i) {
    ZINC_TRY(created, GgufFileWriter::create(paths[i], plan.headers[i]));
    files.push_back(std::move(created));
  }
  QuantizedWriter writer(file, plan, importance, callbacks, n_threads);
  for (const PlannedTensor& tensor : plan.tensors) {
    const size_t index = files.size() == 1 ? 0 : static_cast<size_t>(tensor.source->shard);
    ZINC_TRY(written, writer.write(files[index], tensor));
  }
  if (callbacks.cancelled()) return fail(ErrorCode::cancelled, "interrupted; nothing was written");
  return commit_all(files, paths);
}

}  // namespace zinc
