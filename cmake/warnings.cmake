# Flags every target of ours is built with: warnings are errors, and the sanitizers the preset asked for.
add_library(zinc_flags INTERFACE)
target_compile_options(zinc_flags INTERFACE -Wall -Wextra -Wconversion -Werror -fno-math-errno -fno-trapping-math)
target_include_directories(zinc_flags INTERFACE ${CMAKE_SOURCE_DIR}/src)
if(ZINC_SANITIZE)
  target_compile_options(zinc_flags INTERFACE -fsanitize=${ZINC_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  target_link_options(zinc_flags INTERFACE -fsanitize=${ZINC_SANITIZE})
  if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)  # GCC 12 takes instrumented library code (<regex>) for uninitialised reads
    target_compile_options(zinc_flags INTERFACE -Wno-maybe-uninitialized)
    if(ZINC_SANITIZE STREQUAL thread)  # Asio's fences; its queues have locks as well, which the sanitizer does see
      target_compile_options(zinc_flags INTERFACE -Wno-tsan)
    endif()
  endif()
endif()
if(ZINC_FUZZ)
  target_compile_options(zinc_flags INTERFACE -fsanitize=fuzzer-no-link)
  target_link_options(zinc_flags INTERFACE -fsanitize=fuzzer-no-link)
endif()
