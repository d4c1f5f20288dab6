import { mongodbTarget } from '../../schedules/targets/mongodb.ts'
import { playSchedules } from './schedules.ts'

playSchedules(mongodbTarget)
