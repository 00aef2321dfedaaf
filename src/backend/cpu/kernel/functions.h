// Declarations of the kernels of one instruction set, for kernel/table.cc. See backend/cpu/kernels.h.
#pragma once

#include "backend/cpu/kernels.h"

namespace zinc::cpu::ZINC_ISA {

void quantize(const float* x, size_t n, ActivationFormat format, int8_t* q, float* scale, int16_t* sum16,
              int16_t* sum32);
void rms_norm(const float* x, const float* weight, float eps, size_t n, float* out);
void l2_norm(const float* x, float eps, size_t n, float* out);
void gated_act(Act act, const float* gate, const float* up, size_t n, float* out);
void add(const float* a, const float* b, size_t n, float* out);
void mul(const float* a, const float* b, size_t n, float* out);
void unary(Op op, const float* x, float factor, size_t n, float* out);
void add_scaled(const float* x, float factor, size_t n, float* sum);
void short_conv(const float* const* x, const float* weight, int n_taps, size_t n, float* out);
size_t argmax(const float* x, size_t n);
void merge_value(const SoftmaxState& partial, const float* partial_acc, size_t v_dim, SoftmaxState& running,
                 float* acc);
void finish_attention(const SoftmaxState& row, const float* acc, const float* sink, size_t v_dim, float* out);
void delta_net(const DeltaTask& task);
const KvLayout* kv_layout(std::string_view format);
size_t run_dot_products(size_t n_rounds, int32_t* sink);

extern const PanelFormat* const kPanelFormats[];

}  // namespace zinc::cpu::ZINC_ISA
