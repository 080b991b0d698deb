import { mount } from "./simulator";
import "./style.css";

mount(document.querySelector("#main")!, { hash: true });
