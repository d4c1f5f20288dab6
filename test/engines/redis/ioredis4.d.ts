/** The oldest version that is supported. It has no types of its own; what is used of it here is as in the newest. */
declare module 'ioredis4' {
  import { Redis } from 'ioredis'
  export default Redis
}
