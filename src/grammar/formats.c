/* Formats of JSON Schema (draft 2020-12, section 7.3), each by the RFC that it names. */
#include "grammar/formats.h"

#include <stddef.h>
#include <string.h>

/* RFC 3339: days by month; February 29 in years that 4 divides, except for those that 100
 * and not 400 divides. */
#define YEAR   "(?:000[1-9]|00[1-9][0-9]|0[1-9][0-9]{2}|[1-9][0-9]{3})"
#define LEAP   "(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:0[48]|[2468][048]|[13579][26])00)"
#define DAYS28 "(?:0[1-9]|1[0-9]|2[0-8])"
#define DATE                                                                                                 \
    "(?:" YEAR "-(?:(?:0[13578]|1[02])-(?:" DAYS28 "|29|30|31)|(?:0[469]|11)-(?:" DAYS28                     \
    "|29|30)|02-" DAYS28 ")|" LEAP "-02-29)"
#define TIME                                                                                                 \
    "(?:(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\\.[0-9]+)?(?:[Zz]|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9]" \
    ")|23:59" FORMAT_LEAP "(?:\\.[0-9]+)?(?:[Zz]|[+-]00:00))"

/* RFC 1123 */
#define LABEL "[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
#define HOST  LABEL "(?:\\." LABEL ")*"
/* RFC 5321, without quoted local parts and address literals */
#define ATOM "[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+"

/* RFC 2673, RFC 4291 */
#define OCTET "(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
#define IPV4  OCTET "\\." OCTET "\\." OCTET "\\." OCTET
#define H     "[0-9A-Fa-f]{1,4}"
#define IPV6                                                                                                 \
    "(?:(?:" H ":){7}(?:" H "|:)|(?:" H ":){6}(?::" H "|" IPV4 "|:)|(?:" H ":){5}(?:(?::" H "){1,2}|:" IPV4  \
    "|:)|(?:" H ":){4}(?:(?::" H "){1,3}|(?::" H ")?:" IPV4 "|:)|(?:" H ":){3}(?:(?::" H "){1,4}|(?::" H     \
    "){0,2}:" IPV4 "|:)|(?:" H ":){2}(?:(?::" H "){1,5}|(?::" H "){0,3}:" IPV4 "|:)|" H ":(?:(?::" H         \
    "){1,6}|(?::" H "){0,4}:" IPV4 "|:)|:(?:(?::" H "){1,7}|(?::" H "){0,5}:" IPV4 "|:))"

/* RFC 3986 */
#define PCT       "%[0-9A-Fa-f]{2}"
#define PCHAR     "(?:[A-Za-z0-9._~!$&'()*+,;=:@-]|" PCT ")"
#define PCHAR_NC  "(?:[A-Za-z0-9._~!$&'()*+,;=@-]|" PCT ")"
#define USERINFO  "(?:[A-Za-z0-9._~!$&'()*+,;=:-]|" PCT ")*"
#define REGNAME   "(?:[A-Za-z0-9._~!$&'()*+,;=-]|" PCT ")*"
#define IPVFUTURE "[Vv][0-9A-Fa-f]+\\.[A-Za-z0-9._~!$&'()*+,;=:-]+"
#define AUTHORITY "(?:" USERINFO "@)?(?:" REGNAME "|\\[(?:" IPV6 "|" IPVFUTURE ")\\])(?::[0-9]*)?"
#define TAIL      "(?:\\?(?:" PCHAR "|[/?])*)?(?:#(?:" PCHAR "|[/?])*)?"
#define HIER                                                                                                 \
    "(?://" AUTHORITY "(?:/" PCHAR "*)*|/(?:" PCHAR "+(?:/" PCHAR "*)*)?|" PCHAR "+(?:/" PCHAR "*)*|)"
#define RELATIVE                                                                                             \
    "(?://" AUTHORITY "(?:/" PCHAR "*)*|/(?:" PCHAR "+(?:/" PCHAR "*)*)?|" PCHAR_NC "+(?:/" PCHAR "*)*|)"
#define URI "[A-Za-z][A-Za-z0-9+.-]*:" HIER TAIL

/* RFC 6901, RFC 6570 */
#define POINTER "(?:/(?:[^~/]|~[01])*)*"
#define VARNAME "(?:[A-Za-z0-9_]|" PCT ")(?:\\.?(?:[A-Za-z0-9_]|" PCT "))*"
#define VARSPEC VARNAME "(?::[1-9][0-9]{0,3}|\\*)?"
/* ucschar and iprivate, of the planes that are assigned */
#define UCS                                                                                                  \
    "\\u00a0-\\ud7ff\\ue000-\\ufdcf\\ufdf0-\\uffef\\u{10000}-\\u{1fffd}\\u{20000}-\\u{2fffd}"                \
    "\\u{30000}-\\u{3fffd}\\u{e1000}-\\u{efffd}\\u{f0000}-\\u{ffffd}\\u{100000}-\\u{10fffd}"
#define TEMPLATE                                                                                             \
    "(?:[!#$&()*+,./0-9:;=?@A-Z\\[\\]_a-z~" UCS "-]|" PCT "|\\{[+#./;?&=,!@|]?" VARSPEC "(?:," VARSPEC       \
    ")*\\})*"

/* ISO 8601 as RFC 3339 has it in appendix A */
#define TIME_PART "T(?:[0-9]+H(?:[0-9]+M(?:[0-9]+S)?)?|[0-9]+M(?:[0-9]+S)?|[0-9]+S)"
#define DURATION                                                                                             \
    "P(?:(?:[0-9]+D|[0-9]+M(?:[0-9]+D)?|[0-9]+Y(?:[0-9]+M(?:[0-9]+D)?)?)(?:" TIME_PART ")?|" TIME_PART       \
    "|[0-9]+W)"

#define UUID "[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}"

static const schema_format formats[] = {
    {"date", DATE, false},
    {"time", TIME, true},
    {"date-time", DATE "[Tt]" TIME, true},
    {"duration", DURATION, false},
    {"email", ATOM "(?:\\." ATOM ")*@" HOST, false},
    {"hostname", HOST, false},
    {"ipv4", IPV4, false},
    {"ipv6", IPV6, false},
    {"uri", URI, false},
    {"uri-reference", "(?:" URI "|" RELATIVE TAIL ")", false},
    {"uri-template", TEMPLATE, false},
    {"uuid", UUID, false},
    {"json-pointer", POINTER, false},
    {"relative-json-pointer", "(?:0|[1-9][0-9]*)(?:#|" POINTER ")", false},
    {"idn-email", NULL, false},
    {"idn-hostname", NULL, false},
    {"iri", NULL, false},
    {"iri-reference", NULL, false},
    {"regex", NULL, false},
};

const schema_format *schema_format_find(const char *name) {
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++) {
        if (strcmp(formats[i].name, name) == 0) {
            return &formats[i];
        }
    }
    return NULL;
}
