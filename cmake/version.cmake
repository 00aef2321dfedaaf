# The commit the program was built from; "unknown" outside a git checkout.
execute_process(COMMAND git -C ${CMAKE_SOURCE_DIR} rev-parse --short=12 HEAD
  OUTPUT_VARIABLE ZINC_COMMIT OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
if(NOT ZINC_COMMIT)
  set(ZINC_COMMIT unknown)
endif()
