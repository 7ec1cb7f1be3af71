# `make install`: the programs, their manual pages and completions, the library, static and shared, its headers and its pkg-config file.
configure_file(cmake/quire.pc.in quire.pc @ONLY)
install(TARGETS quire_program quire_lab_program quire quire_shared RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR}
    LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(FILES include/quire.h include/quire_kv.h include/quire_explain.h include/quire_stats.h include/quire_hub.h include/quire_program.h include/quire_err.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(FILES ${CMAKE_BINARY_DIR}/quire.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

# What the programs write about themselves. A program of another machine or of a sanitizer does not run here.
if(CMAKE_CROSSCOMPILING OR QUIRE_SANITIZE)
    return()
endif()
set(quire_pages ${CMAKE_BINARY_DIR}/share)
set(quire_said)
# quire_says(FILE PROGRAM ARGUMENTS...): FILE below share/ is what the program prints.
function(quire_says file program)
    get_filename_component(directory ${quire_pages}/${file} DIRECTORY)
    add_custom_command(OUTPUT ${quire_pages}/${file} COMMAND ${CMAKE_COMMAND} -E make_directory ${directory}
        COMMAND ${program} ${ARGN} > ${quire_pages}/${file} DEPENDS ${program} VERBATIM)
    set(quire_said ${quire_said} ${quire_pages}/${file} PARENT_SCOPE)
endfunction()

quire_says(man/man1/quire.1 quire_program help --man)
quire_says(man/man1/quire-lab.1 quire_lab_program help --man all)
foreach(command run serve tokenize logits inspect pack pull list rm)
    quire_says(man/man1/quire-${command}.1 quire_program help --man ${command})
endforeach()
# quire-lab knows the flags of both programs.
quire_says(bash-completion/completions/quire quire_lab_program help --completions bash)
quire_says(zsh/site-functions/_quire quire_lab_program help --completions zsh)
quire_says(fish/vendor_completions.d/quire.fish quire_lab_program help --completions fish)
add_custom_target(quire_pages ALL DEPENDS ${quire_said})
install(DIRECTORY ${quire_pages}/man/ DESTINATION ${CMAKE_INSTALL_MANDIR})
install(DIRECTORY ${quire_pages}/bash-completion ${quire_pages}/zsh ${quire_pages}/fish DESTINATION ${CMAKE_INSTALL_DATADIR})
