import { consulTarget } from '../../schedules/targets/consul.ts'
import { playSchedules } from './schedules.ts'

playSchedules(consulTarget)
