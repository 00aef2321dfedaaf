# zinc_page(OUT): the chat page of web/ as a C++ file that holds its files compressed; an empty list where it is left out
# (ZINC_WEB=OFF). Packages are fetched once into the build folder, as web/package-lock.json names them.
function(zinc_page out)
  if(NOT ZINC_WEB)
    file(CONFIGURE OUTPUT ${out} CONTENT
"#include \"server/page.h\"
namespace zinc {
const PageFile kPageFiles[] = {{nullptr, nullptr, nullptr, false, {}, {}, {}}};
}  // namespace zinc
" @ONLY)
    return()
  endif()
  find_program(ZINC_NODE node)
  find_program(ZINC_NPM npm)
  if(NOT ZINC_NODE OR NOT ZINC_NPM)
    message(FATAL_ERROR "The chat page needs Node 18 or later and npm: tools/install_deps.sh web installs them, "
                        "-DZINC_WEB=OFF builds without the page.")
  endif()
  set(web ${CMAKE_SOURCE_DIR}/web)
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${web}/src/* ${web}/static/*)
  add_custom_command(
    OUTPUT ${out}
    COMMAND ${web}/build.sh ${ZINC_NODE} ${ZINC_NPM} ${CMAKE_BINARY_DIR}/web ${out}
    DEPENDS ${sources} ${web}/build.sh ${web}/fetch_packages.sh ${web}/build.mjs
            ${web}/package.json ${web}/package-lock.json
    COMMENT "Building the chat page" VERBATIM)
endfunction()
