// A decoded kernel: SPIR-V with specialization constants applied, as instructions on slots. A slot has 32 bits per lane
// of a subgroup; 64-bit values take two slots, vectors and structs one or more per member. Every value and every
// private variable has its own slots: GLSL has no recursion.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "tests/emulated_vulkan/shared_memory.h"

namespace zinc::emulated_vulkan {

// SPIR-V opcodes, and our own for cases decided at decode time.
enum Op : uint16_t {
  kExtInst = 12,
  kMemoryModel = 14,
  kEntryPoint = 15,
  kExecutionMode = 16,
  kTypeVoid = 19,
  kTypeBool = 20,
  kTypeInt = 21,
  kTypeFloat = 22,
  kTypeVector = 23,
  kTypeArray = 28,
  kTypeRuntimeArray = 29,
  kTypeStruct = 30,
  kTypePointer = 32,
  kTypeFunction = 33,
  kTypeForwardPointer = 39,
  kConstantTrue = 41,
  kConstantFalse = 42,
  kConstant = 43,
  kConstantComposite = 44,
  kSpecConstant = 50,
  kSpecConstantOp = 52,
  kFunction = 54,
  kFunctionParameter = 55,
  kFunctionEnd = 56,
  kFunctionCall = 57,
  kVariable = 59,
  kLoad = 61,
  kStore = 62,
  kAccessChain = 65,
  kDecorate = 71,
  kMemberDecorate = 72,
  kVectorShuffle = 79,
  kCompositeConstruct = 80,
  kCompositeExtract = 81,
  kConvertFToU = 109,
  kConvertFToS = 110,
  kConvertSToF = 111,
  kConvertUToF = 112,
  kUConvert = 113,
  kSConvert = 114,
  kConvertUToPtr = 120,
  kBitcast = 124,
  kFNegate = 127,
  kIAdd = 128,
  kFAdd = 129,
  kISub = 130,
  kFSub = 131,
  kIMul = 132,
  kFMul = 133,
  kUDiv = 134,
  kSDiv = 135,
  kFDiv = 136,
  kSMod = 139,
  kVectorTimesScalar = 142,
  kIsNan = 156,
  kLogicalOr = 166,
  kLogicalAnd = 167,
  kLogicalNot = 168,
  kSelect = 169,
  kIEqual = 170,
  kINotEqual = 171,
  kUGreaterThan = 172,
  kSGreaterThan = 173,
  kUGreaterThanEqual = 174,
  kSGreaterThanEqual = 175,
  kULessThan = 176,
  kSLessThan = 177,
  kULessThanEqual = 178,
  kSLessThanEqual = 179,
  kFOrdEqual = 180,
  kFUnordNotEqual = 183,
  kFOrdLessThan = 184,
  kFOrdGreaterThan = 186,
  kFOrdGreaterThanEqual = 190,
  kShiftRightLogical = 194,
  kShiftRightArithmetic = 195,
  kShiftLeftLogical = 196,
  kBitwiseOr = 197,
  kBitwiseXor = 198,
  kBitwiseAnd = 199,
  kNot = 200,
  kBitFieldSExtract = 202,
  kControlBarrier = 224,
  kMemoryBarrier = 225,
  kAtomicIAdd = 234,
  kPhi = 245,
  kLoopMerge = 246,
  kSelectionMerge = 247,
  kLabel = 248,
  kBranch = 249,
  kBranchConditional = 250,
  kReturn = 253,
  kReturnValue = 254,
  kShuffleXor = 346,
  kCopyLogical = 400,
  kSDot = 4450,
  kTypeMatrix = 4456,
  kMatrixLoad = 4457,
  kMatrixStore = 4458,
  kMatrixMulAdd = 4459,
  kMatrixLength = 4460,

  kCopy = 60000,  // slots to slots
  kSplat,         // one slot to n
  kLoadSlots,     // private variable at a slot that differs between lanes
  kStoreSlots,
  kSlotChain,
  kByteChain,
  kGlsl = 61000,  // plus the GLSL.std.450 instruction number
};

// SPIR-V numbers of the built-in variables that the kernels use.
enum Builtin : uint32_t {
  kNumWorkgroups = 24,
  kWorkgroupId = 26,
  kGlobalInvocationId = 28,
  kLocalInvocationIndex = 29,
  kSubgroupSize = 36,
  kNumSubgroups = 38,
  kSubgroupId = 40,
  kSubgroupInvocationId = 41,
};

struct Instruction {
  uint16_t op = 0;
  uint16_t n = 0;                        // components or slots
  uint8_t is_wide = 0;                   // 64-bit; kSelect: one condition for all components
  uint8_t is_shared = 0;                 // shared memory
  uint32_t to = 0, a = 0, b = 0, c = 0;  // slots; kLoad, kStore: see translate_memory
  uint32_t more = 0;                     // index of further operands in Program::words; 0: none
};

struct Program {
  std::vector<Instruction> code;
  std::vector<uint32_t> words = {0};
  std::vector<uint32_t> block_at;                        // in block order
  std::vector<std::pair<uint32_t, uint32_t>> constants;  // slot, value
  std::vector<std::pair<uint32_t, uint32_t>> builtins;   // slot, Builtin
  std::vector<std::pair<uint32_t, uint32_t>> bindings;   // slot of the pointer, binding
  std::vector<std::pair<uint32_t, uint32_t>> shared;     // slot of the pointer, offset
  uint32_t main_block = 0, n_slots = 0, n_threads = 0, shared_bytes = 0;
  size_t n_words = 0;  // of the SPIR-V module
  std::string name;    // for messages
};

// Aborts if the kernel uses an unsupported instruction.
Program decode(std::span<const uint32_t> words, const std::map<uint32_t, uint32_t>& constants);

[[noreturn]] void fault(const std::string& message);

}  // namespace zinc::emulated_vulkan
