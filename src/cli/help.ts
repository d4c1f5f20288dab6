export function version(): number {
  return 0
}
export function help(_name: string | undefined, _stream: NodeJS.WriteStream): number {
  return 0
}
