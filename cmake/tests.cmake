# Unit tests: the files tests/ROOM/test_*.c become one program a room, tests/ROOM, which links the rooms it may see and runs the file it is given.
# Each file is a test of its own: `tests/kv test_pool` is the test kv_test_pool. Target tests_ROOM builds a room's.
include(cmake/unit_tests.cmake)

# What takes more than some five seconds by itself; label slow. `make check` and the quick sets under sanitizers leave these out. Label
# heavy: those that take over half a minute under a sanitizer; the quick sets there leave these out too.
set(QUIRE_SLOW_TESTS backend_test_attention_int8 engine_test_branch engine_test_draft_model engine_test_exact_types file_test_hf
    kv_test_index_random kv_test_tier_file server_test_readers server_test_watch jinja_test_bounds jinja_test_jinja jinja_test_turns)
set(QUIRE_HEAVY_TESTS answer_test_call_budgets answer_test_call_grammar request_test_request_sizes engine_test_beam engine_test_cascade engine_test_draft engine_test_draft_tree
    engine_test_exact engine_test_exact_states engine_test_finite engine_test_fork engine_test_preempt engine_test_prefix_wait engine_test_reuse kv_test_most_pages)

quire_tests(base base)
quire_tests(core base core)
quire_tests(expr base core expr)
quire_tests(json base json)
quire_tests(grammar base core json grammar)
quire_tests(file base core json file)
quire_tests(hub base core json file hub)
quire_tests(text base core json file text)
quire_tests(jinja base core json jinja)
quire_tests(chat base core json file text jinja chat)
quire_tests(kv base core kv)
quire_tests(backend base core expr json cpu)
quire_tests(model base core json file cpu kv model)
quire_tests(sched base core kv sched)
quire_tests(sample base core sample)
quire_tests(spec base core json file kv model sample spec)
quire_tests(answer base core expr json grammar file text jinja chat sample request answer)
quire_tests(engine base core expr json file cpu kv model sched sample spec engine)
quire_tests(setup base core expr json grammar file text jinja chat cpu kv model sched sample spec request answer engine options setup)
quire_tests(request ${QUIRE_CORE_ROOMS})
quire_tests(stream ${QUIRE_CORE_ROOMS})
quire_tests(api ${QUIRE_CORE_ROOMS})
quire_tests(program ${QUIRE_CORE_ROOMS})
quire_tests(server base core json grammar kv options programs execute server)
quire_tests(options base options)
quire_tests(cli base json options)
quire_tests(lab/sim ${QUIRE_CORE_ROOMS} lab_bench lab_sim)
quire_tests(lab/bench ${QUIRE_CORE_ROOMS} lab_bench lab_sim)

# Our names of src/json beside the library's, which begin with json_ too.
add_test(NAME json_symbols COMMAND ${CMAKE_SOURCE_DIR}/tests/json/symbols.sh ${JANSSON_LINK_LIBRARIES} $<TARGET_OBJECTS:quire_json> COMMAND_EXPAND_LISTS)
set_tests_properties(json_symbols PROPERTIES LABELS json)

# The server's tests run over a stand-in for the engine; the program's files are tested one by one, without its main.
if(TARGET tests_server)
    target_sources(tests_server PRIVATE ${CMAKE_SOURCE_DIR}/tests/server/fake_quire.c ${CMAKE_SOURCE_DIR}/tests/server/fake_lacks.c)
    target_link_libraries(tests_server PRIVATE PkgConfig::EVENT http_parser PkgConfig::OPENSSL)
endif()
if(TARGET tests_cli)
    foreach(unit batch_part conversation environment files tty set_flag flags body)
        target_sources(tests_cli PRIVATE ${CMAKE_SOURCE_DIR}/src/cli/${unit}.c)
    endforeach()
endif()
foreach(room sim bench) # whose texts are read by the program's own reader
    if(TARGET tests_${room})
        target_sources(tests_${room} PRIVATE ${CMAKE_SOURCE_DIR}/src/cli/files.c)
    endif()
endforeach()

if(amx IN_LIST isa_native)
    set_property(SOURCE ${CMAKE_SOURCE_DIR}/tests/backend/test_amx.c APPEND PROPERTY COMPILE_DEFINITIONS QUIRE_AMX)
endif()

# A model without work, whose passes a test defines itself.
option(QUIRE_TEST_LARGER "The engine's tests run the larger built-in model, some six times the work; all files of tests are optimised" OFF)
if(TARGET tests_engine)
    if(QUIRE_TEST_LARGER)
        target_compile_definitions(tests_engine PRIVATE QUIRE_TEST_LARGER)
    endif()
    target_sources(tests_engine PRIVATE ${CMAKE_SOURCE_DIR}/lab/bench/null_model.c)
endif()

# The example of quire_kv.h, which is right when its slots hold what they should and 37 tokens are found.
add_executable(example_kv ${CMAKE_SOURCE_DIR}/examples/kv.c $<TARGET_OBJECTS:quire_base> $<TARGET_OBJECTS:quire_core> $<TARGET_OBJECTS:quire_kv>)
target_include_directories(example_kv PRIVATE ${CMAKE_SOURCE_DIR}/include)
target_link_libraries(example_kv PRIVATE ${QUIRE_LIBRARIES})
set_target_properties(example_kv PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
add_test(NAME example_kv COMMAND example_kv)
set_tests_properties(example_kv PROPERTIES LABELS kv PASS_REGULAR_EXPRESSION "37 of 50 tokens from the cache.*7 held  2 cached 55 free")
if(TARGET tests_kv)
    add_dependencies(tests_kv example_kv)
endif()

# The libraries as they are installed: which names they export, and whether a program builds against them.
set(library_flags)
if(QUIRE_SANITIZE)
    set(library_flags -fsanitize=${QUIRE_SANITIZE})
endif()
add_test(NAME library_names COMMAND ${CMAKE_SOURCE_DIR}/tests/library/names.sh ${CMAKE_BINARY_DIR} ${CMAKE_C_COMPILER})
add_test(NAME library_install COMMAND ${CMAKE_SOURCE_DIR}/tests/library/install.sh ${CMAKE_BINARY_DIR} ${CMAKE_COMMAND} ${CMAKE_C_COMPILER} ${library_flags})
add_test(NAME library_examples COMMAND ${CMAKE_SOURCE_DIR}/tests/library/examples.sh ${CMAKE_BINARY_DIR} ${CMAKE_COMMAND} ${library_flags})
set_tests_properties(library_names library_install library_examples PROPERTIES LABELS library TIMEOUT 1800)
add_custom_target(tests_library DEPENDS quire_program quire quire_shared)
