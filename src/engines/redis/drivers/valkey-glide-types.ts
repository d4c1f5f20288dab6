/** What is used of a GLIDE `GlideClient` or `GlideClusterClient`. */
export interface GlideClient {
  customCommand(args: string[], options?: object): Promise<unknown>
  close(): void
}

/** `Decoder.String` of GLIDE: whatever default decoder the user has set, our replies are strings. */
export const DECODER_STRING = 1
