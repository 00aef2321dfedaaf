# Less compile time: precompiled headers where the compiler is GCC. The build of `make debug`, by clang, has none: there a file
# that misses an include does not compile.
if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)
  set(ZINC_PCH ON)
else()
  set(ZINC_PCH OFF)
endif()

# Tests run once and compile slowly: half of a compile is the text of gtest and of Boost.JSON, a third the optimizer's work on
# what the assertions expand to. Their own code is optimized little, in a Debug build not at all.
function(zinc_fast_test_compile target)
  target_compile_options(${target} PRIVATE -O$<IF:$<CONFIG:Debug>,0,1>)
  if(NOT CMAKE_CXX_COMPILER_ID STREQUAL GNU)
    return()
  endif()
  # GCC 12 sees copies past the end in strings that are added up, where it inlines half of it; the length of a path decides.
  target_compile_options(${target} PRIVATE -Wno-array-bounds -Wno-restrict -Wno-stringop-overflow -Wno-stringop-overread)
  if(NOT ZINC_PCH)
    return()
  endif()
  if(target STREQUAL base_test)
    target_precompile_headers(${target} PRIVATE <gtest/gtest.h> <boost/json.hpp> <fmt/format.h> <filesystem>
                              <functional> <thread>)
  else()
    target_precompile_headers(${target} REUSE_FROM base_test)
  endif()
endfunction()
