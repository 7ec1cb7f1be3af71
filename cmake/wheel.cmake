# quire_wheel_program: the program for a wheel (tools/wheel.py). It needs no library of Debian's but libc's: an executable may hold archives whose objects are
# not position-independent, as those of jansson, libevent and libedit. A library that has no archive is linked as elsewhere.
set(quire_wheel_libraries)
set(quire_crypto_needs ${OPENSSL_STATIC_LIBRARIES}) # zlib and the like, where libcrypto was built with them
list(FILTER quire_crypto_needs EXCLUDE REGEX "^(crypto|dl|pthread|c|m)$")
foreach(library event_core event_extra event_pthreads http_parser edit tinfo bsd md jansson pcre2-8 utf8proc uring hiredis crypto ${quire_crypto_needs})
    find_library(QUIRE_STATIC_${library} lib${library}.a)
    mark_as_advanced(QUIRE_STATIC_${library})
    if(QUIRE_STATIC_${library})
        list(APPEND quire_wheel_libraries ${QUIRE_STATIC_${library}})
    elseif(library IN_LIST quire_crypto_needs)
        list(TRANSFORM quire_wheel_libraries REPLACE "^${QUIRE_STATIC_crypto}$" crypto)
    elseif(NOT library MATCHES "^(tinfo|bsd|md)$") # which a shared libedit brings by itself
        list(APPEND quire_wheel_libraries ${library})
    endif()
endforeach()
# One object, whose names are local: jansson's archive has names inside that ours have too (utf8_encode).
set(quire_wheel_object ${CMAKE_BINARY_DIR}/wheel/quire.o)
add_library(quire_wheel_main OBJECT EXCLUDE_FROM_ALL ${CMAKE_SOURCE_DIR}/src/cli/main.c)
set_target_properties(quire_wheel_main PROPERTIES C_VISIBILITY_PRESET default) # main stays a name
target_include_directories(quire_wheel_main PRIVATE ${CMAKE_SOURCE_DIR}/src ${CMAKE_SOURCE_DIR}/include)
set(quire_wheel_objects $<TARGET_OBJECTS:quire_wheel_main> $<TARGET_OBJECTS:quire_cli> $<TARGET_OBJECTS:quire_server> ${quire_objects})
add_custom_command(OUTPUT ${quire_wheel_object}
    COMMAND ${CMAKE_COMMAND} -E make_directory ${CMAKE_BINARY_DIR}/wheel
    COMMAND ${CMAKE_C_COMPILER} -r -nostdlib -o ${quire_wheel_object} ${quire_wheel_objects}
    COMMAND ${CMAKE_OBJCOPY} --localize-hidden ${quire_wheel_object}
    DEPENDS ${quire_wheel_objects} COMMAND_EXPAND_LISTS VERBATIM COMMENT "Making one object of the program's rooms")
set_source_files_properties(${quire_wheel_object} PROPERTIES EXTERNAL_OBJECT ON GENERATED ON)
add_executable(quire_wheel_program EXCLUDE_FROM_ALL ${quire_wheel_object})
set_target_properties(quire_wheel_program PROPERTIES LINKER_LANGUAGE C OUTPUT_NAME quire RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/wheel)
target_link_options(quire_wheel_program PRIVATE -no-pie -Wl,--as-needed -Wl,--exclude-libs,ALL)
target_link_libraries(quire_wheel_program PRIVATE ${quire_wheel_libraries} Threads::Threads ${CMAKE_DL_LIBS} m)
