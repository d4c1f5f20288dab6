/**
 * Makes the kernel kill a program when the process that started it is gone. Our own clean-up does not run when the test
 * run is killed, and a server left behind would keep its port and its memory for good. (`setpriv` belongs to every
 * Debian; it replaces itself by the program, so the process id stays the same.)
 */
export function tethered(path: string, args: readonly string[]): [path: string, args: string[]] {
  return ['setpriv', ['--pdeathsig', 'KILL', '--', path, ...args]]
}
