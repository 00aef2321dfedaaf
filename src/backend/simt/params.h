// Kernel parameters of all families. A struct is declared once: the host that launches and NVRTC compile the same file.
#pragma once

#include "backend/simt/params/attention.h"
#include "backend/simt/params/device_tests.h"
#include "backend/simt/params/gemv.h"
#include "backend/simt/params/matmul.h"
#include "backend/simt/params/moe.h"
#include "backend/simt/params/recurrent.h"
#include "backend/simt/params/row_ops.h"
#include "backend/simt/params/sample.h"
#include "backend/simt/params/step.h"
