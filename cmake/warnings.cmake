# Flags every target of ours is built with: warnings are errors, and the sanitizers the preset asked for. No multiply
# and add is fused but where the code says so: results do not depend on compiler and processor.
add_library(zinc_flags INTERFACE)
target_compile_options(zinc_flags INTERFACE -Wall -Wextra -Wconversion -Werror -fno-math-errno -fno-trapping-math
                       -ffp-contract=off)
if(CMAKE_SYSTEM_PROCESSOR STREQUAL aarch64)  # char is signed on x86-64 and unsigned on Arm
  target_compile_options(zinc_flags INTERFACE -fsigned-char)
endif()
target_include_directories(zinc_flags INTERFACE ${CMAKE_SOURCE_DIR}/src)
if(ZINC_SANITIZE)
  target_compile_options(zinc_flags INTERFACE -fsanitize=${ZINC_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  target_link_options(zinc_flags INTERFACE -fsanitize=${ZINC_SANITIZE})
  if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)  # GCC 12 takes instrumented library code (<regex>) for uninitialized reads
    target_compile_options(zinc_flags INTERFACE -Wno-maybe-uninitialized)
  endif()
endif()
if(ZINC_FUZZ)
  target_compile_options(zinc_flags INTERFACE -fsanitize=fuzzer-no-link)
  target_link_options(zinc_flags INTERFACE -fsanitize=fuzzer-no-link)
endif()
# ZINC_DCHECK is checked where NDEBUG is not defined: in every build that exists to find mistakes.
if(ZINC_SANITIZE OR ZINC_FUZZ OR CMAKE_BUILD_TYPE STREQUAL Debug)
  string(TOUPPER "${CMAKE_BUILD_TYPE}" build_type)
  if("${CMAKE_CXX_FLAGS} ${CMAKE_CXX_FLAGS_${build_type}}" MATCHES "NDEBUG")
    message(FATAL_ERROR "This build defines NDEBUG, which switches ZINC_DCHECK off: configure it with a preset of CMakePresets.json.")
  endif()
endif()
