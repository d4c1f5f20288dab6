/** What is used of a GLIDE `GlideClient` or `GlideClusterClient`. */
export interface GlideClient {
  customCommand(args: string[], options?: object): Promise<unknown>
  close(): void
}

/** `Decoder.String` of GLIDE: our replies are strings, whichever default decoder the user has set. */
export const DECODER_STRING = 1
