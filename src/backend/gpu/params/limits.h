// Constants that the kernels of every GPU backend and their hosts share, declared once: the hosts include this file,
// NVRTC compiles it as CUDA C++, and tools/shaders translates it to GLSL. It has only integer constants and enums, and
// includes nothing.
#pragma once

namespace zinc::kernel {

inline constexpr int kPanelRows = 32;            // interleaved weight rows of a panel, one per lane
inline constexpr int kSegmentElems = 256;        // inputs of a K segment, summed before anything else is added
inline constexpr int kGroupElems = 32;           // inputs of a quant group, loaded together
inline constexpr int kSegmentGroups = 8;         // quant groups of a segment
inline constexpr int kThreads = 256;             // per block (workgroup)
inline constexpr int kWarps = 8;                 // of 32 consecutive threads, whatever the device's subgroup size
inline constexpr int kPageTokens = 32;           // positions of a KV page
inline constexpr int kChunkPositions = 256;      // KV positions of a chunk, which has its own partial softmax
inline constexpr int kAttentionUnitInts = 8;     // size of an AttentionUnit in the step's upload
inline constexpr int kAttentionUnitPartial = 7;  // index of its first_partial
inline constexpr int kMaxPageGroups = 4;         // KV page groups of a model
inline constexpr int kMaxTaps = 8;               // taps of a short convolution
inline constexpr int kMaxExperts = 1024;
inline constexpr int kDeltaChunk = 64;          // tokens per chunk of the chunked gated delta rule
inline constexpr int kMaxVerificationRows = 8;  // of a sequence; in longer ones only the last row has a state slot
inline constexpr int kSampleChunk = 64;         // logits per chunk whose maximum is stored for sampling

// Index of each count in the step's upload.
enum Count : int {
  kTokens = 0,
  kSeqs = 1,
  kOutputs = 2,
  kSampledRows = 3,                       // outputs with sampling parameters: all or none
  kPageTableStride = 4,                   // + page group: columns per sequence in its page table
  kPageTableOffset = 4 + kMaxPageGroups,  // + page group: index of its page table in the upload, in ints
  kStepNumber = 4 + 2 * kMaxPageGroups,   // Vulkan: submissions of this recording, including the current one
  kLogitRows = 5 + 2 * kMaxPageGroups,    // Vulkan: rows whose logits are copied to the host
  kCounts = 16
};

// Sampling parameters of a row in the step's upload: floats and the double by their bits.
enum SamplingField : int {
  kInvTemperature = 0,  // 0: greedy
  kTopK = 1,
  kTopP = 2,
  kLogMinP = 3,
  kUniformLow = 4,
  kUniformHigh = 5,
  kSamplingInts = 6
};

// The values of zinc::Act, and none.
enum Activation : int { kNoAct = -1, kSilu = 0, kGelu = 1, kSigmoid = 2, kSwigluOai = 3 };

// Router weights of the selected experts: the values of zinc::RouterNormalization.
enum RouterWeights : int {
  kSoftmaxOverAll = 0,            // not renormalized
  kSoftmaxOverAllNormalized = 1,  // divided by the sum of the selected
  kSoftmaxOfSelected = 2
};

enum Elementwise : int { kAdd = 0, kMul = 1, kScale = 2, kSoftcap = 3, kRelu2 = 4 };

// Index of HeadInput parts.
enum QkvIndex : int { kQuery = 0, kKey = 1, kValue = 2 };

}  // namespace zinc::kernel
