# `make install` and the Debian package: the program, its man page and its completions, which it writes itself.
include(GNUInstallDirs)
set(CMAKE_SKIP_INSTALL_ALL_DEPENDENCY ON)  # the target `pages` has all that is installed; tests need not be built
set(pages ${CMAKE_BINARY_DIR}/pages)
set(page_files "")
foreach(page bash zsh fish man)
  add_custom_command(OUTPUT ${pages}/${page} COMMAND ${CMAKE_COMMAND} -E make_directory ${pages}
    COMMAND zinc completion ${page} > ${pages}/${page} DEPENDS zinc VERBATIM)
  list(APPEND page_files ${pages}/${page})
endforeach()
add_custom_target(pages DEPENDS ${page_files} zinc)  # what is installed

install(TARGETS zinc RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(FILES ${pages}/man DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 RENAME zinc.1)
install(FILES ${pages}/bash DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions RENAME zinc)
install(FILES ${pages}/fish DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d RENAME zinc.fish)
# Where zsh looks depends on the prefix, which is known when it is installed: packages and /usr have a folder of their own.
install(CODE "
  set(folder site-functions)
  if(CMAKE_INSTALL_PREFIX MATCHES \"^/usr/?$\")
    set(folder vendor-completions)
  else()
    message(STATUS \"fish finds its completions where XDG_DATA_DIRS has \${CMAKE_INSTALL_PREFIX}/share\")
  endif()
  file(INSTALL DESTINATION \"\${CMAKE_INSTALL_PREFIX}/share/zsh/\${folder}\" TYPE FILE RENAME _zinc FILES \"${pages}/zsh\")")
install(FILES ${CMAKE_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/zinc RENAME copyright)

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME zinc)
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "runs language models on this machine")
set(CPACK_PACKAGE_CONTACT "The zinc authors <authors@zinc.invalid>")
set(CPACK_STRIP_FILES ON)
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_MAINTAINER ${CPACK_PACKAGE_CONTACT})
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_DEPENDS ca-certificates)  # models come over https
# Opened at run time where they are there: GPUs are used with them, and processors without. pip says which package index the
# default model comes from.
set(CPACK_DEBIAN_PACKAGE_RECOMMENDS "python3-pip, libvulkan1, mesa-vulkan-drivers")
set(CPACK_DEBIAN_PACKAGE_SUGGESTS "libnvrtc12")
include(CPack)

# The target `portable`, for `make dist`: the same objects, linked for any system with glibc 2.31 or later.
if(NOT CMAKE_CXX_COMPILER_ID STREQUAL GNU OR ZINC_SANITIZE)
  return()
endif()
get_property(layers DIRECTORY src PROPERTY BUILDSYSTEM_TARGETS)
set(archives "")
foreach(layer IN LISTS layers)
  get_target_property(type ${layer} TYPE)
  if(type STREQUAL STATIC_LIBRARY)
    list(APPEND archives $<TARGET_FILE:${layer}>)
  endif()
endforeach()
file(GLOB portable_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/cmake/portable/*.cc)
set(portable ${CMAKE_BINARY_DIR}/portable)
add_custom_command(OUTPUT ${portable}/zinc
  COMMAND ${CMAKE_SOURCE_DIR}/tools/link_portable.py --compiler ${CMAKE_CXX_COMPILER} --processor ${CMAKE_SYSTEM_PROCESSOR}
          --work ${portable} --output ${portable}/zinc $<TARGET_OBJECTS:zinc> ${archives}
  DEPENDS zinc ${CMAKE_SOURCE_DIR}/tools/link_portable.py ${portable_sources}
  COMMENT "Linking the portable program" COMMAND_EXPAND_LISTS VERBATIM)
add_custom_target(portable DEPENDS ${portable}/zinc)
