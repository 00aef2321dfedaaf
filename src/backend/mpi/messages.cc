#include "backend/mpi/messages.h"

namespace zinc::mpi {

void write_step(const StepInputs& step, BlobWriter& out) {
  out.put_all(step.tokens);
  out.put_all(step.positions);
  out.put_all(step.seq_begin);
  out.put_all(step.slots);
  out.put_all(step.row_slots);
  out.put_all(step.rope_scalings);
  out.put(uint32_t(step.page_tables.size()));
  for (const PageTable& table : step.page_tables) {
    out.put(table.stride);
    out.put_all(table.entries);
  }
  out.put_all(step.output_rows);
  out.put_all(step.sampling);
  out.put_all(step.logit_rows);
  out.put_all(step.hidden);
  out.put(step.wants_hidden);
}

void ReceivedStep::read(BlobReader& in) {
  in.get_all(tokens);
  in.get_all(positions);
  in.get_all(seq_begin);
  in.get_all(slots);
  in.get_all(row_slots);
  in.get_all(rope_scalings);
  pages.resize(in.get<uint32_t>());
  page_tables.clear();
  for (std::vector<PageId>& entries : pages) {
    const int stride = in.get<int>();
    in.get_all(entries);
    page_tables.push_back({entries, stride});
  }
  in.get_all(output_rows);
  in.get_all(sampling);
  in.get_all(logit_rows);
  in.get_all(hidden);
  inputs = {.tokens = tokens,
            .positions = positions,
            .seq_begin = seq_begin,
            .slots = slots,
            .row_slots = row_slots,
            .rope_scalings = rope_scalings,
            .page_tables = page_tables,
            .output_rows = output_rows,
            .sampling = sampling,
            .logit_rows = logit_rows,
            .hidden = hidden,
            .wants_hidden = in.get<bool>()};
}

void write_output(const StepOutput& step, BlobWriter& out) {
  out.put_all(step.sampled);
  out.put_all<float>(step.logits);
  out.put_all(step.hidden);
}

void ReceivedOutput::read(BlobReader& in) {
  in.get_all(sampled);
  in.get_all(logits);
  in.get_all(hidden);
}

}  // namespace zinc::mpi
