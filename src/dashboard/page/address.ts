/** Which of several engines this page shows; null: the first one. */
const engine = new URLSearchParams(location.search).get('engine')

/** An address of the server, for that engine. */
export function address(path: string, parameters: Readonly<Record<string, string>> = {}): string {
  const query = new URLSearchParams({ ...(engine === null ? {} : { engine }), ...parameters }).toString()
  return `./${path}${query === '' ? '' : `?${query}`}`
}
