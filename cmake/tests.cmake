# Unit tests: tests/ROOM/test_*.c each become one program that links the rooms it may see; target tests_ROOM builds a room's.
pkg_check_modules(CMOCKA REQUIRED IMPORTED_TARGET cmocka)

# quire_tests(ROOM ROOMS...): every tests/ROOM/test_*.c with the objects of ROOMS.
function(quire_tests room)
    file(GLOB files CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tests/${room}/test_*.c)
    set(objects)
    foreach(r ${ARGN})
        list(APPEND objects $<TARGET_OBJECTS:quire_${r}>)
    endforeach()
    add_custom_target(tests_${room})
    foreach(file ${files})
        get_filename_component(name ${file} NAME_WE)
        set(target ${room}_${name})
        add_executable(${target} ${file} ${objects})
        target_include_directories(${target} PRIVATE ${CMAKE_SOURCE_DIR}/include ${CMAKE_SOURCE_DIR}/src ${CMAKE_SOURCE_DIR}/tests)
        target_link_libraries(${target} PRIVATE ${QUIRE_LIBRARIES} PkgConfig::CMOCKA)
        set_target_properties(${target} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
        add_test(NAME ${target} COMMAND ${target} WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
        set_tests_properties(${target} PROPERTIES LABELS ${room} TIMEOUT 600)
        add_dependencies(tests_${room} ${target})
    endforeach()
endfunction()

quire_tests(base base)
quire_tests(core base core)
quire_tests(json base json)
quire_tests(file base core json file)
quire_tests(text base core json file text)
quire_tests(kv base core kv)
quire_tests(backend base core json cpu)
quire_tests(model base core json file cpu kv model)
quire_tests(sched base core kv sched)
quire_tests(sample base core sample)
quire_tests(engine base core json file cpu kv model sched sample spec engine)
quire_tests(api ${QUIRE_CORE_ROOMS})
quire_tests(server base core json kv server)
quire_tests(cli base json)
quire_tests(sim ${QUIRE_CORE_ROOMS} bench sim)
quire_tests(bench ${QUIRE_CORE_ROOMS} bench sim)

# Our names of src/json beside the library's, which begin with json_ too.
add_test(NAME json_symbols COMMAND ${CMAKE_SOURCE_DIR}/tests/json/symbols.sh ${JANSSON_LINK_LIBRARIES} $<TARGET_OBJECTS:quire_json> COMMAND_EXPAND_LISTS)
set_tests_properties(json_symbols PROPERTIES LABELS json)

# The server's tests run over a stand-in for the engine.
file(GLOB server_tests CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tests/server/test_*.c)
foreach(file ${server_tests})
    get_filename_component(name ${file} NAME_WE)
    target_sources(server_${name} PRIVATE ${CMAKE_SOURCE_DIR}/tests/server/fake_quire.c)
    target_link_libraries(server_${name} PRIVATE PkgConfig::EVENT http_parser PkgConfig::OPENSSL)
endforeach()

# The program's files are tested one by one, without its main.
target_sources(cli_test_batch_part PRIVATE ${CMAKE_SOURCE_DIR}/src/cli/batch_part.c ${CMAKE_SOURCE_DIR}/src/cli/files.c)

# The example of quire_kv.h, which is right when its slots hold what they should and 37 tokens are found.
add_executable(example_kv ${CMAKE_SOURCE_DIR}/examples/kv.c $<TARGET_OBJECTS:quire_base> $<TARGET_OBJECTS:quire_core> $<TARGET_OBJECTS:quire_kv>)
target_include_directories(example_kv PRIVATE ${CMAKE_SOURCE_DIR}/include)
target_link_libraries(example_kv PRIVATE ${QUIRE_LIBRARIES})
set_target_properties(example_kv PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
add_test(NAME example_kv COMMAND example_kv)
set_tests_properties(example_kv PROPERTIES LABELS kv PASS_REGULAR_EXPRESSION "37 of 50 tokens from the cache.*7 held  2 cached 55 free")
add_dependencies(tests_kv example_kv)

# The libraries as they are installed: which names they export, and whether a program builds against them.
set(library_flags)
if(QUIRE_SANITIZE)
    set(library_flags -fsanitize=${QUIRE_SANITIZE})
endif()
add_test(NAME library_names COMMAND ${CMAKE_SOURCE_DIR}/tests/library/names.sh ${CMAKE_BINARY_DIR} ${CMAKE_C_COMPILER})
add_test(NAME library_install COMMAND ${CMAKE_SOURCE_DIR}/tests/library/install.sh ${CMAKE_BINARY_DIR} ${CMAKE_COMMAND} ${CMAKE_C_COMPILER} ${library_flags})
set_tests_properties(library_names library_install PROPERTIES LABELS library TIMEOUT 600)
add_custom_target(tests_library DEPENDS quire_program quire quire_shared)
