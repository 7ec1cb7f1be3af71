/* The program's standard input, output and error: that what was printed has arrived, and that a closed pipe ends the program with a
 * message. For main. */
#ifndef CLI_STANDARD_FILES_H
#define CLI_STANDARD_FILES_H

/* Takes care that the three are open, so that no file of the program's own gets their numbers, and that writing to a pipe that nobody reads
 * any more says so and ends the program with status 1 at once, whatever it is doing. To a socket it is an error of the write. */
void standard_files_open(void);
/* The exit status: 1, with a message, where a command that would have ended with 0 could not print all that it had to say. */
int standard_files_finish(int status);

#endif
