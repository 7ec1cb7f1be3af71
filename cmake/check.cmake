# quire-check: runs a directory of expected outputs (the format of tests/golden) against this build. Built when asked for, never installed.
file(GLOB check_files CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tests/check/*.c)
if(check_files)
    add_executable(quire-check EXCLUDE_FROM_ALL ${check_files})
    target_include_directories(quire-check PRIVATE ${CMAKE_SOURCE_DIR}/src ${CMAKE_SOURCE_DIR} ${CMAKE_SOURCE_DIR}/tests)
    target_link_libraries(quire-check PRIVATE quire_rooms)
endif()
