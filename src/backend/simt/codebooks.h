// Codebooks of 4-bit formats, four int8 per word.
#pragma once

// -127 -104 -83 -65 -49 -35 -22 -10 1 13 25 38 53 69 89 113
#define ZINC_IQ4_CODEBOOK \
  { 0xBFAD9881u, 0xF6EADDCFu, 0x26190D01u, 0x71594535u }
// E2M1, doubled: 0 1 2 3 4 6 8 12 0 -1 -2 -3 -4 -6 -8 -12
#define ZINC_FP4_CODEBOOK \
  { 0x03020100u, 0x0C080604u, 0xFDFEFF00u, 0xF4F8FAFCu }
