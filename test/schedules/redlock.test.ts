import { redlockTarget } from '../../schedules/targets/redis.ts'
import { playSchedules } from './schedules.ts'

playSchedules(redlockTarget)
