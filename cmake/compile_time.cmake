# Tests run once and compile slowly: half of a compile is the text of gtest and of Boost.JSON, hence the precompiled header, a third
# the optimizer's work on what the assertions expand to. Their own code is optimized little, in a Debug build not at all.
function(zinc_fast_test_compile target)
  target_compile_options(${target} PRIVATE -O$<IF:$<CONFIG:Debug>,0,1>)
  # GCC 12 sees copies past the end in strings that are added up, where it inlines half of it; the length of a path decides.
  if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)
    target_compile_options(${target} PRIVATE -Wno-array-bounds -Wno-restrict -Wno-stringop-overflow -Wno-stringop-overread)
  endif()
  if(target STREQUAL base_test)
    target_precompile_headers(${target} PRIVATE <gtest/gtest.h> <boost/json.hpp> <fmt/format.h> <filesystem>
                              <functional> <thread>)
  else()
    target_precompile_headers(${target} REUSE_FROM base_test)
  endif()
endfunction()

# Layers that wait more than they calculate: a sanitized build compiles them in half the time without the optimizer.
function(zinc_fast_debug_compile)
  foreach(target IN LISTS ARGN)
    target_compile_options(${target} PRIVATE $<$<CONFIG:Debug>:-O0>)
  endforeach()
endfunction()
