# `make install`: the programs, the library, static and shared, its headers and its pkg-config file.
configure_file(cmake/quire.pc.in quire.pc @ONLY)
install(TARGETS quire_program quire_lab_program quire quire_shared RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR}
    LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(FILES include/quire.h include/quire_kv.h include/quire_explain.h include/quire_stats.h include/quire_err.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(FILES ${CMAKE_BINARY_DIR}/quire.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
