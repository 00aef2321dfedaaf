// Parameters of the kernels, passed as uniform blocks. Each struct is declared once, in params/: the host includes the
// declaration, tools/shaders translates it to GLSL. The kernels' scalar layout is the C++ layout as long as the size of
// every nested struct is a multiple of its alignment; Kernels.parameters_have_the_layout_of_the_host checks that.
#pragma once

#include "backend/vulkan/params/attention.h"
#include "backend/vulkan/params/device_tests.h"
#include "backend/vulkan/params/matmul.h"
#include "backend/vulkan/params/moe.h"
#include "backend/vulkan/params/recurrent.h"
#include "backend/vulkan/params/row_ops.h"
#include "backend/vulkan/params/sample.h"
#include "backend/vulkan/params/spec_constants.h"
#include "backend/vulkan/params/step.h"
