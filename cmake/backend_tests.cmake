# The tests of src/backend are three programs: backend_unit_test (seconds), backend_conformance_test (every op on every device,
# an entry per device) and backend_kernels_test (compiles the CUDA kernels with NVRTC for six architectures: minutes).
set(backend_tests "")
foreach(folder backend ${backend_folders})
  file(GLOB files CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${folder}/*_test.cc)
  list(APPEND backend_tests ${files})
endforeach()
set(kernel_tests ${backend_tests})
list(FILTER kernel_tests INCLUDE REGEX "/cuda/kernel_cache_test\\.cc$")
set(conformance_tests ${backend_tests})
list(FILTER conformance_tests INCLUDE REGEX "/conformance_test\\.cc$|/cuda/(gpu|device_functions|gemm_small|delta_layer|moe_kernels)_test\\.cc$|/vulkan/(gemm_small|delta_layer)_test\\.cc$")
set(conformance_cases ${backend_tests})
list(FILTER conformance_cases INCLUDE REGEX "/conformance_[a-z_]+_test\\.cc$")
list(REMOVE_ITEM backend_tests ${conformance_tests} ${conformance_cases} ${kernel_tests})

# The cases, which unit tests use too.
add_library(conformance_cases OBJECT ${conformance_cases})
target_compile_definitions(conformance_cases PRIVATE ZINC_SOURCE_DIR="${CMAKE_SOURCE_DIR}")
target_include_directories(conformance_cases PRIVATE ${CMAKE_SOURCE_DIR})
target_link_libraries(conformance_cases PRIVATE zinc_backend GTest::gtest)
zinc_fast_test_compile(conformance_cases)

zinc_unit_program(backend_unit_test zinc_backend ${backend_tests} $<TARGET_OBJECTS:conformance_cases>)
set(not_here VulkanRdna.*:*on_a_gpu_*:VulkanDevice.recurrent_states*)  # other entries and tools/test_on_gpu.py run them
if(ZINC_SANITIZE)  # nor what needs llvmpipe: Mesa and its compiler leak and race in ways of their own
  string(APPEND not_here :VulkanPlan.*:VulkanDevice.w*:VulkanDevice.measured*:VulkanDevice.concurrent*)
endif()
zinc_unit_test(backend_unit backend_unit_test --gtest_filter=-${not_here})
zinc_unit_program(backend_conformance_test zinc_backend ${conformance_tests} $<TARGET_OBJECTS:conformance_cases>)
zinc_unit_test(backend_conformance_reference backend_conformance_test
               --gtest_filter=All/Conformance.*/reference_*:ConformanceCheck.*)
# The CPU's cases run the reference backend too, for what they expect: the sanitizers see it there.
set_tests_properties(backend_conformance_reference PROPERTIES LABELS unit)
zinc_unit_test(backend_conformance_cpu backend_conformance_test --gtest_filter=All/Conformance.*/cpu_*)

if(ZINC_VULKAN AND NOT ZINC_SANITIZE)
  # llvmpipe, Vulkan on the CPU: a smoke test for everybody, every op, and every case.
  set(llvmpipe All/Conformance.*/vulkan_llvmpipe_)
  add_test(NAME backend_conformance_llvmpipe_smoke COMMAND backend_conformance_test
    --gtest_filter=${llvmpipe}linear_q4_k*:${llvmpipe}attention_cache_f16*:${llvmpipe}moe_route*:${llvmpipe}norm*)
  # Most of its time is compilation, a second or more for each specialization; the emulated devices have the others.
  add_test(NAME backend_conformance_llvmpipe COMMAND backend_conformance_test
    --gtest_filter=${llvmpipe}*:All/VulkanDeltaLayer.*/vulkan_llvmpipe_128x128-${not_sampled}:*attention_deep*:*_long*:*cache_q4_0*:*cache_fp8*:*windowed*:*_sequences_*:*far_on*:*attention_gated*:*_T3:*_T40:*linear_q4_k_512*)
  add_test(NAME backend_conformance_llvmpipe_all COMMAND backend_conformance_test
    --gtest_filter=${llvmpipe}*:All/VulkanDeltaLayer.*/vulkan_llvmpipe_*)
  # Kernels where a subgroup is four threads wide.
  add_test(NAME vulkan_subgroups COMMAND backend_conformance_test --gtest_filter=${llvmpipe}attention_cache_f16*:${llvmpipe}linear_q4_k*:${llvmpipe}moe_route*:${llvmpipe}moe_linear_q4_k:${llvmpipe}delta*:${llvmpipe}norm*-*_long)
  # Mesa compiling for an RDNA3 GPU that is not present.
  file(GLOB radeon /usr/share/vulkan/icd.d/radeon_icd.*.json)
  add_test(NAME vulkan_rdna COMMAND backend_unit_test --gtest_filter=VulkanRdna.*)
  set_tests_properties(vulkan_rdna PROPERTIES ENVIRONMENT "RADV_FORCE_FAMILY=gfx1100;VK_ICD_FILENAMES=${radeon}")
  set_tests_properties(backend_conformance_llvmpipe_smoke PROPERTIES LABELS e2e)
  set_tests_properties(backend_conformance_llvmpipe vulkan_subgroups vulkan_rdna PROPERTIES LABELS maintainer TIMEOUT 2400)
  set_tests_properties(backend_conformance_llvmpipe_all PROPERTIES LABELS exhaustive COST 300 TIMEOUT 2400)
  set_tests_properties(backend_conformance_llvmpipe PROPERTIES COST 100)
  set_property(TEST vulkan_subgroups PROPERTY ENVIRONMENT LP_NATIVE_VECTOR_WIDTH=128)
  set_property(TEST backend_conformance_llvmpipe_smoke backend_conformance_llvmpipe backend_conformance_llvmpipe_all vulkan_subgroups vulkan_rdna PROPERTY
               FAIL_REGULAR_EXPRESSION "FAILED;PASSED  . 0 tests")
endif()

if(ZINC_CUDA)
  zinc_unit_program(backend_kernels_test zinc_backend ${kernel_tests})
  if(NOT ZINC_SANITIZE)  # NVRTC comes from Python's package index; it needs no GPU
    set(python_packages ${CMAKE_BINARY_DIR}/python-packages)
    add_test(NAME nvrtc_package COMMAND ${CMAKE_SOURCE_DIR}/tools/install_nvrtc.sh ${python_packages})
    set_tests_properties(nvrtc_package PROPERTIES FIXTURES_SETUP nvrtc SKIP_RETURN_CODE 77 LABELS maintainer)
    # An architecture takes about 100 s: in CI the oldest one, of the fewest features, and the one of all of them.
    set(others */sm_80:*/sm_86:*/sm_89:*/sm_120)
    add_test(NAME backend_kernels COMMAND backend_kernels_test --gtest_filter=-${others})
    add_test(NAME backend_kernels_others COMMAND backend_kernels_test --gtest_filter=${others})
    set_tests_properties(backend_kernels backend_kernels_others PROPERTIES LABELS maintainer COST 250 TIMEOUT 2400
                         FIXTURES_REQUIRED nvrtc ENVIRONMENT PYTHONPATH=${python_packages})
    set_tests_properties(backend_kernels_others PROPERTIES LABELS exhaustive)
  endif()
endif()
