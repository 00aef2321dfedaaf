// TQ1_0: blocks of 256: x = d * (digit - 1), five base-3 digits per byte on disk; stored as TQ2_0, in 2.06 bits instead
// of 1.69.
#include "backend/cpu/format/plain_blocks.h"

namespace zinc::cpu::ZINC_ISA {
namespace {

struct Kind {
  static constexpr int kElems = 256, kBits = 2;
  struct FileBlock {
    uint8_t five[48];  // 32 bytes for elements 0-159 (digit n of byte m: element 32 n + m), 16 bytes for 160-239
    uint8_t four[4];   // digit n of byte m: element 240 + 4 n + m
    uint16_t d;
  };
  static_assert(sizeof(FileBlock) == 54);

  // A byte is a fraction of 256: multiplied by 3, the carry out of 8 bits is the next digit.
  static uint8_t* read_digits(const uint8_t* bytes, size_t n_bytes, size_t n_digits, uint8_t* codes) {
    uint8_t power = 1;
    for (size_t n = 0; n < n_digits; ++n, power = static_cast<uint8_t>(power * 3)) {
      for (size_t m = 0; m < n_bytes; ++m) {
        const uint8_t rest = static_cast<uint8_t>(bytes[m] * power);
        *codes++ = static_cast<uint8_t>(rest * 3 >> 8);
      }
    }
    return codes;
  }
  static void read(const FileBlock& file_block, uint8_t* codes) {
    codes = read_digits(file_block.five, 32, 5, codes);
    codes = read_digits(file_block.five + 32, 16, 5, codes);
    read_digits(file_block.four, 4, 4, codes);
  }
};

}  // namespace

extern const PanelFormat k_panel_tq1_0;
const PanelFormat k_panel_tq1_0 = panel_format<PlainBlock<Kind>>("tq1_0");

}  // namespace zinc::cpu::ZINC_ISA
